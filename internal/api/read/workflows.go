package read

import (
	"maps"
	"slices"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Workflows are the workflows of a ref as people see them.
func Workflows(at ingress.RefWorkflows) client.Workflows {
	out := client.Workflows{
		Source: at.Source, Ref: at.Ref, SHA: at.SHA, Title: at.Title, DefaultBranch: at.DefaultBranch,
		Workflows: make([]client.Workflow, len(at.File.Workflows)),
	}
	for i := range at.File.Workflows {
		w := &at.File.Workflows[i]
		shown := client.Workflow{Name: w.Name, File: w.SourceFile, Jobs: make([]client.WorkflowJob, len(w.Jobs))}
		if trigger := workflow.DispatchTrigger(w); trigger != nil {
			shown.Startable, shown.Inputs = true, inputs(trigger)
		}
		for j, job := range w.Jobs {
			shown.Jobs[j] = workflowJob(job)
		}
		out.Workflows[i] = shown
	}
	return out
}

func inputs(t *lock.Trigger) []client.Input {
	var out []client.Input
	for _, name := range slices.Sorted(maps.Keys(t.Inputs)) {
		in := t.Inputs[name]
		out = append(out, client.Input{
			Name: name, Type: in.Type, Description: in.Description, Required: in.Required, Default: in.Default, Values: in.Values,
			Min: in.Min, Max: in.Max, Pattern: in.Pattern,
		})
	}
	return out
}

func workflowJob(j lock.Job) client.WorkflowJob {
	out := client.WorkflowJob{Name: j.Name, RunsOn: j.RunsOn.Labels, Matrix: j.Matrix != nil}
	for _, n := range j.Needs {
		out.Needs = append(out.Needs, n.Job)
	}
	return out
}
