package localcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/agent/local"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/workflowcmd"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// prepared is everything that is known before anything runs.
type prepared struct {
	tree    local.Tree
	mode    local.Mode
	facts   plan.Facts
	plan    plan.Plan
	secrets map[string]string
	env     map[string]string
	notices []string
}

func prepare(ctx context.Context, c *console.Console, f flags, args []string) (*prepared, error) {
	p := &prepared{mode: local.Commit}
	switch {
	case f.dirty:
		p.mode = local.Dirty
	case f.inPlace:
		p.mode = local.InPlace
	}
	root, err := workflowcmd.Root(f.dir)
	if err != nil {
		return nil, err
	}
	file, err := p.load(root)
	if err != nil {
		return nil, err
	}
	w, err := pick(c, file, args)
	if err != nil {
		return nil, err
	}
	if p.tree, err = local.Inspect(ctx, root); err != nil {
		return nil, err
	}
	if p.secrets, err = readSecrets(c, f.secretFile); err != nil {
		return nil, err
	}
	if p.env, err = readEnv(f.env, os.LookupEnv); err != nil {
		return nil, err
	}
	event, inputs, err := p.eventOf(w, f)
	if err != nil {
		return nil, err
	}
	p.facts = plan.Facts{
		Run:   plan.Run{ID: ci.NewID(), Repo: p.tree.Name, Workflow: w.Name, Actor: event.Actor, Number: 1, Attempt: 1},
		Event: event, Inputs: inputs, Workflow: w,
	}
	p.plan = plan.Make(p.facts, ci.NewID)
	p.notices = append(p.notices, p.plan.Warnings...)
	if hasGroups(w) {
		p.notices = append(p.notices, "concurrency groups do nothing here: nobody but this run could hold one, and its jobs do not wait for each other; -j 1 runs them one by one")
	}
	if p.mode == local.Commit && p.tree.Changed {
		p.notices = append(p.notices, "the working tree has changes that the jobs do not see; --dirty lets them see it")
	}
	return p, p.choose(f)
}

// hasGroups reports whether the workflow, or a job of it, asks for a concurrency group.
func hasGroups(w *lock.Workflow) bool {
	return w.Concurrency != nil || slices.ContainsFunc(w.Jobs, func(j lock.Job) bool { return j.Concurrency != nil })
}

// load reads the workflows as "kici validate" does; a lock file that is not current is not used, because authors run what they see.
func (p *prepared) load(root string) (*lock.File, error) {
	files, err := workflowcmd.Read(root)
	if err != nil {
		return nil, err
	}
	file, result, problems := workflow.Load(files)
	if result == workflow.Drift {
		p.notices = append(p.notices, workflow.LockPath+" is not current; the workflow files themselves are used")
		file, problems = workflow.Compile(files)
	}
	if result == workflow.Missing {
		return nil, fmt.Errorf("there are no workflow files in %s; \"kici init\" writes a first one", workflow.FilesDir)
	}
	if file != nil {
		return file, nil
	}
	var texts []string
	for _, problem := range problems {
		if !problem.Warning {
			texts = append(texts, problem.Error())
		}
	}
	return nil, fmt.Errorf("the workflows cannot be used:\n  %s", strings.Join(texts, "\n  "))
}

// pick is the workflow that is meant: by its name or its file's, the only one, or the one that the person chooses.
func pick(c *console.Console, file *lock.File, args []string) (*lock.Workflow, error) {
	var names []string
	for i := range file.Workflows {
		w := &file.Workflows[i]
		base := path.Base(w.SourceFile)
		if len(args) > 0 && slices.Contains([]string{w.Name, base, strings.TrimSuffix(base, path.Ext(base))}, args[0]) {
			return w, nil
		}
		names = append(names, w.Name)
	}
	switch {
	case len(args) > 0:
		return nil, console.Usage("there is no workflow %q: %s", args[0], suggest.Cure(args[0], names))
	case len(names) == 1:
		return &file.Workflows[0], nil
	case !c.InTerminal || !c.OutTerminal:
		return nil, console.Usage("there are several workflows (%s); name one", strings.Join(names, ", "))
	}
	for i, name := range names {
		fmt.Fprintf(c.Err, "%3d  %s\n", i+1, console.CleanLine(name))
	}
	fmt.Fprintf(c.Err, "Which workflow? [1-%d] ", len(names))
	line, _ := bufio.NewReader(c.In).ReadString('\n')
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || n < 1 || n > len(names) {
		return nil, console.Usage("%q is not one of them; name the workflow", strings.TrimSpace(line))
	}
	return &file.Workflows[n-1], nil
}

// choose keeps the jobs that were asked for.
func (p *prepared) choose(f flags) (err error) {
	values := map[string][]string{}
	for _, pair := range f.matrix {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return console.Usage("--matrix %q is not key=value", pair)
		}
		values[key] = append(values[key], value)
	}
	if len(values) > 0 {
		if p.plan, err = p.plan.Matrix(values); err != nil {
			return console.Usage("--matrix: %w", err)
		}
	}
	if len(f.jobs) > 0 {
		if p.plan, err = p.plan.Only(f.jobs); err != nil {
			return console.Usage("--job: %w", err)
		}
	}
	return nil
}

// readSecrets reads name=value lines; lines that begin with # are comments.
func readSecrets(c *console.Console, file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, console.Usage("--secret-file: %s", err)
	}
	if info.Mode().Perm()&0o044 != 0 {
		c.Notice("note: %s can be read by other users of this machine; chmod 600 cures that", file)
	}
	out, err := local.ReadSecrets(file)
	if err != nil {
		return nil, console.Usage("--secret-file: %s", err)
	}
	return out, nil
}

func readEnv(pairs []string, lookup func(string) (string, bool)) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range pairs {
		name, value, given := strings.Cut(p, "=")
		if name == "" {
			return nil, console.Usage("--env %q is not name=value", p)
		}
		if !given {
			var set bool
			if value, set = lookup(name); !set {
				return nil, console.Usage("--env %s: your environment has no such variable; give name=value", name)
			}
		}
		out[name] = value
	}
	return out, nil
}

func readInputs(f flags) (map[string]any, error) {
	out := map[string]any{}
	if f.inputsFile != "" {
		b, err := os.ReadFile(f.inputsFile)
		if err != nil {
			return nil, console.Usage("--inputs-file: %s", err)
		}
		if err := json.Unmarshal(b, &out); err != nil {
			return nil, console.Usage("%s is not a JSON object: %w", f.inputsFile, err)
		}
	}
	for _, p := range f.inputs {
		name, text, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, console.Usage("--input %q is not name=value", p)
		}
		out[name] = text
	}
	return out, nil
}
