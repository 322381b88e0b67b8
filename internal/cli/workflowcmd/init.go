package workflowcmd

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
)

//go:embed starter.yaml
var starter string

func initCmd(c *console.Console) *cobra.Command {
	var dir, name string
	cmd := &cobra.Command{
		Use: "init", Short: "Write a first workflow into this repository", Args: cobra.NoArgs,
		Long:    "Write a commented workflow to .kici/workflows/NAME.yaml. A file that is there already is never overwritten.",
		Example: "  kici init\n  kici init --name nightly",
		RunE: func(*cobra.Command, []string) error {
			at, err := Root(dir)
			if err != nil {
				return err
			}
			return initialise(c, at, name)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().StringVar(&name, "name", "ci", "name of the workflow and its file")
	return cmd
}

func initialise(c *console.Console, at, name string) error {
	if ok, _ := regexp.MatchString(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`, name); !ok {
		return console.Usage("--name takes letters, digits, dots, - and _, not %q", name)
	}
	rel := workflow.FilesDir + "/" + strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml") + ".yaml"
	if err := create(at, rel, strings.Replace(starter, "name: ci\n", "name: "+strings.TrimSuffix(filepath.Base(rel), ".yaml")+"\n", 1)); err != nil {
		return err
	}
	out := struct {
		Path string `json:"path"`
	}{rel}
	return c.Print(out, func() error {
		if _, err := fmt.Fprintln(c.Out, rel); err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(at, ".git")); err != nil {
			c.Notice("%s is not a git repository: kici reads workflows from commits, so make it one with \"git init\"", at)
		}
		c.Notice("next: edit it, check it with \"kici validate\", commit it, and let kici know the repository with \"kici source add local .\"")
		return nil
	})
}

// create writes a new file below a checkout. It goes through no link that leads out of it.
func create(at, rel, text string) error {
	tree, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	if err = tree.MkdirAll(workflow.FilesDir, 0o755); err != nil {
		return err
	}
	f, err := tree.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already and stays as it is; choose another --name", rel)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
