package workflowcmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
)

func compileCmd(c *console.Console) *cobra.Command {
	var dir string
	var check, strict bool
	cmd := &cobra.Command{
		Use: "compile", Short: "Write the lock file of the workflow files", Args: cobra.NoArgs,
		Long: "Compile .kici/workflows/*.yaml into " + workflow.LockPath + ". Committing the lock is optional: without one the server compiles\n" +
			"the files itself. With one, it must be current: --check exits with 2 when it is not, and writes nothing.",
		Example: "  kici compile\n  kici compile --check",
		RunE: func(*cobra.Command, []string) error {
			at, err := Root(dir)
			if err != nil {
				return err
			}
			return compile(c, at, check, strict)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&check, "check", false, "only say whether the lock file is current")
	cmd.Flags().BoolVar(&strict, "strict", false, "let warnings fail too")
	return cmd
}

func compile(c *console.Console, at string, check, strict bool) error {
	files, err := Read(at)
	if err != nil {
		return err
	}
	f, problems := workflow.Compile(files)
	r := &report{Result: workflow.OK.String(), Lock: workflow.LockPath, Problems: problems, sources: linesOf(files)}
	switch {
	case f == nil:
		r.Result = workflow.Corrupt.String()
		return finish(c, r, strict)
	case len(f.Workflows) == 0:
		r.Result = workflow.Missing.String()
		r.Problems = append(r.Problems, workflow.Problem{
			File: workflow.FilesDir, Message: "there are no workflow files to compile", Cure: "kici init writes a first one",
		})
		return finish(c, r, strict)
	}
	for _, w := range f.Workflows {
		r.Workflows = append(r.Workflows, w.Name)
	}
	if _, warnings, _ := count(problems); strict && warnings > 0 {
		return finish(c, r, strict)
	}
	want, err := workflow.Encode(f)
	if err != nil {
		return err
	}
	name := filepath.Join(at, filepath.FromSlash(workflow.LockPath))
	have, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	current := err == nil && bytes.Equal(have, want)
	if check {
		return checked(c, r, current, err == nil)
	}
	if !current {
		if err = replace(name, want); err != nil {
			return err
		}
	}
	if err = finish(c, r, strict); err != nil {
		return err
	}
	if current {
		c.Notice("%s is current", workflow.LockPath)
	} else {
		c.Notice("wrote %s", workflow.LockPath)
	}
	return nil
}

// checked reports what --check found.
func checked(c *console.Console, r *report, current, exists bool) error {
	r.Current = &current
	if !current {
		message := "the lock file is not current"
		if !exists {
			message = "there is no lock file"
		}
		r.Result = workflow.Drift.String()
		r.Problems = append(r.Problems, workflow.Problem{File: workflow.LockPath, Message: message, Cure: "run kici compile and commit the result"})
	}
	return finish(c, r, false)
}

// replace writes a file whole or not at all.
func replace(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".kici-lock-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func schemaCmd(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of workflow files, for editors", Args: cobra.NoArgs,
		Long: "Print the JSON Schema of workflow files. Editors with a YAML language server use it when a file begins with\n" +
			"  # yaml-language-server: $schema=PATH",
		Example: "  kici schema > .kici/schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := c.Out.Write(workflow.Schema())
			return err
		},
	}
}
