// Package workflowcmd is the offline commands for authors: kici init, validate, compile and schema. They need a checkout and no
// server.
package workflowcmd

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Commands returns the four commands, to be mounted at the root.
func Commands(c *console.Console) []*cobra.Command {
	return []*cobra.Command{initCmd(c), validateCmd(c), compileCmd(c), schemaCmd(c)}
}

// dirFlag adds --dir: the checkout to work in.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVarP(dir, "dir", "C", "", "work in this checkout instead of the one around the current directory")
}

// Root is the checkout to work in: what was given, else the nearest directory upwards with .kici or .git, else the current one.
func Root(dir string) (string, error) {
	if dir != "" {
		info, err := os.Stat(dir)
		if err != nil {
			return "", console.Usage("%s", err)
		}
		if !info.IsDir() {
			return "", console.Usage("%s is not a directory", dir)
		}
		return dir, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := wd; ; at = filepath.Dir(at) {
		for _, name := range []string{workflow.Dir, ".git"} {
			if _, err = os.Lstat(filepath.Join(at, name)); err == nil {
				return at, nil
			}
		}
		if at == filepath.Dir(at) {
			return wd, nil
		}
	}
}

// Read collects the entries of .kici as git would have them: links are entries of their own and not followed.
func Read(root string) ([]workflow.Source, error) {
	var files []workflow.Source
	top := filepath.Join(root, workflow.Dir)
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err) && name == top:
			return nil
		case err != nil:
			return err
		case e.IsDir():
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		s := workflow.Source{Path: filepath.ToSlash(rel), Mode: "100644"}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			s.Mode = "120000"
		case !e.Type().IsRegular(), !relevant(s.Path):
			return nil
		default:
			if s.Data, err = readFile(name); err != nil {
				return err
			}
		}
		files = append(files, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workflows: %w", err)
	}
	return files, nil
}

func relevant(p string) bool {
	return p == workflow.LockPath || path.Ext(p) == ".yaml" || path.Ext(p) == ".yml"
}

// readFile reads no more of a file than is needed to see that it is too large.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(info.Size(), lock.MaxBytes+1))
	n, err := f.ReadAt(b, 0)
	if n < len(b) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// count says "2 errors and 1 warning".
func count(problems []workflow.Problem) (errors, warnings int, sentence string) {
	for _, p := range problems {
		if p.Warning {
			warnings++
		} else {
			errors++
		}
	}
	var parts []string
	if errors > 0 {
		parts = append(parts, console.Count(int64(errors), "error"))
	}
	if warnings > 0 {
		parts = append(parts, console.Count(int64(warnings), "warning"))
	}
	return errors, warnings, strings.Join(parts, " and ")
}
