package client

import (
	"context"
	"net/url"
)

// Workflows is what a branch, tag or commit of a source has under .kici.
type Workflows struct {
	Source        string     `json:"source"`
	Ref           string     `json:"ref,omitempty"` // full ref; empty for a commit that was named by its id
	SHA           string     `json:"sha"`
	Title         string     `json:"title,omitempty"` // of the commit
	DefaultBranch string     `json:"defaultBranch,omitempty"`
	Workflows     []Workflow `json:"workflows"`
}

// Workflow is one workflow as its file says.
type Workflow struct {
	Name      string        `json:"name"`
	File      string        `json:"file,omitempty"`
	Startable bool          `json:"startable"`        // has a workflow_dispatch trigger: Start takes it
	Inputs    []Input       `json:"inputs,omitempty"` // of that trigger, by name
	Jobs      []WorkflowJob `json:"jobs"`
}

// Input is one typed input of a workflow.
type Input struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"` // string, number, integer, boolean, enum
	Description string   `json:"description,omitempty"`
	Required    bool     `json:"required,omitempty"`
	Default     any      `json:"default,omitempty"`
	Values      []string `json:"values,omitempty"` // of an enum
	Min         *float64 `json:"min,omitempty"`
	Max         *float64 `json:"max,omitempty"`
	Pattern     string   `json:"pattern,omitempty"` // regular expression that a string must match
}

// WorkflowJob is one job before its matrix is expanded.
type WorkflowJob struct {
	Name   string   `json:"name"`
	RunsOn []string `json:"runsOn"` // labels, or the expression that gives them
	Needs  []string `json:"needs,omitempty"`
	Matrix bool     `json:"matrix,omitempty"` // becomes several jobs
}

// Workflows reads the workflows of a source at a branch, tag or commit; "" is its default branch.
func (c *Client) Workflows(ctx context.Context, source, ref string) (out Workflows, err error) {
	v := url.Values{}
	set(v, "ref", ref)
	return out, c.get(ctx, sourcePath(source)+"/workflows", v, &out)
}

// ReplayDelivery processes a failed delivery again; a run that it has started already is not started twice.
func (c *Client) ReplayDelivery(ctx context.Context, id string) (out Delivery, err error) {
	return out, c.post(ctx, admin+"/deliveries/"+url.PathEscape(id)+"/replay", nil, &out)
}
