package workflowcmd

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
)

func validateCmd(c *console.Console) *cobra.Command {
	var dir string
	var strict bool
	cmd := &cobra.Command{
		Use: "validate [FILE...]", Short: "Check workflow files and report every mistake",
		Long: "Check the workflow files of this checkout, or the files that are named, and report every mistake with its place and a cure.\n" +
			"The exit code is 0 when there is none, 1 when there is one, 2 when only the committed lock file is not current. Warnings do\n" +
			"not count unless --strict is given.",
		Example: "  kici validate\n  kici validate --strict .kici/workflows/ci.yaml\n  kici validate --output json",
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := validate(dir, args)
			if err != nil {
				return err
			}
			return finish(c, r, strict)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&strict, "strict", false, "let warnings fail too")
	return cmd
}

func validate(dir string, args []string) (*report, error) {
	if len(args) > 0 {
		return validateFiles(args)
	}
	at, err := Root(dir)
	if err != nil {
		return nil, err
	}
	files, err := Read(at)
	if err != nil {
		return nil, err
	}
	f, result, problems := workflow.Load(files)
	if result == workflow.OK || result == workflow.Drift {
		_, more := workflow.Compile(files) // a lock file hides what the YAML says
		problems = merge(problems, more)
	}
	r := &report{Result: result.String(), Problems: problems, sources: linesOf(files)}
	if result == workflow.Missing {
		r.Problems = append(r.Problems, workflow.Problem{
			File: workflow.FilesDir, Message: "there are no workflow files", Cure: "kici init writes a first one",
		})
	}
	if f != nil {
		for _, w := range f.Workflows {
			r.Workflows = append(r.Workflows, w.Name)
		}
	}
	return r, nil
}

// merge joins two reports without saying anything twice.
func merge(a, b []workflow.Problem) []workflow.Problem {
	seen := make(map[workflow.Problem]bool, len(a))
	for _, p := range a {
		seen[p] = true
	}
	for _, p := range b {
		if !seen[p] {
			a = append(a, p)
		}
	}
	return a
}

// validateFiles checks files wherever they are, as if they stood in .kici/workflows.
func validateFiles(names []string) (*report, error) {
	r := &report{sources: map[string][]string{}}
	given := map[string]string{}
	var files []workflow.Source
	for _, name := range names {
		data, err := readFile(name)
		if err != nil {
			return nil, console.Usage("%s", err)
		}
		s := workflow.Source{Path: workflow.FilesDir + "/" + filepath.Base(name), Data: data}
		if _, dup := given[s.Path]; dup {
			return nil, console.Usage("two of the files are named %s", filepath.Base(name))
		}
		if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
			return nil, console.Usage("%s is not a .yaml or .yml file", name)
		}
		given[s.Path] = name
		files = append(files, s)
	}
	f, problems := workflow.Compile(files)
	for _, p := range problems {
		if name, ok := given[p.File]; ok {
			p.File = name
		}
		r.Problems = append(r.Problems, p)
	}
	for path, lines := range linesOf(files) {
		r.sources[given[path]] = lines
	}
	r.Result = workflow.Corrupt.String()
	if f != nil {
		r.Result = workflow.OK.String()
		for _, w := range f.Workflows {
			r.Workflows = append(r.Workflows, w.Name)
		}
	}
	return r, nil
}

// finish prints a report and turns it into an exit code.
func finish(c *console.Console, r *report, strict bool) error {
	errors, warnings, sentence := count(r.Problems)
	r.OK = errors == 0 && (!strict || warnings == 0)
	if err := r.print(c); err != nil {
		return err
	}
	switch {
	case sentence == "":
		c.Notice("%s, no problem", console.Count(int64(len(r.Workflows)), "workflow"))
	case r.OK:
		c.Notice("%s, %s", console.Count(int64(len(r.Workflows)), "workflow"), sentence)
	default:
		c.Notice("%s", sentence)
	}
	switch {
	case r.OK:
		return nil
	case errors == 1 && r.Result == workflow.Drift.String():
		return console.Exit(console.ExitNotClean)
	}
	return console.Exit(console.ExitFailed)
}
