package client

import (
	"context"
	"fmt"
)

// CheckRun is one commit status: what a run shows beside its commit at the forge.
type CheckRun struct {
	RunID       string `json:"runId"`
	RunNumber   int64  `json:"runNumber"`
	Repo        string `json:"repo"`
	Workflow    string `json:"workflow"`
	JobID       string `json:"jobId,omitempty"` // "" for the workflow's own
	Context     string `json:"context"`
	SHA         string `json:"sha"`
	State       string `json:"state"`  // last posted: pending, running, success, failure, error; "" for none yet
	Wanted      string `json:"wanted"` // what it should be now
	Description string `json:"description,omitempty"`
	Attempts    int64  `json:"attempts"`         // failed ones since the last success
	Reason      string `json:"reason,omitempty"` // unreachable, rate_limited, denied, not_found, refused, gone; superseded
	Error       string `json:"error,omitempty"`

	CreatedAt    Time  `json:"createdAt"`
	PostedAt     *Time `json:"postedAt,omitempty"`
	FailingSince *Time `json:"failingSince,omitempty"`
	GaveUpAt     *Time `json:"gaveUpAt,omitempty"` // it is not tried again
}

// CheckRunList is commit statuses, those of the newest runs first.
type CheckRunList struct {
	CheckRuns []CheckRun `json:"checkRuns"`
}

// Checks sums up the commit statuses of a run.
type Checks struct {
	Posted  int    `json:"posted"`
	Waiting int    `json:"waiting"` // failed, and tried again
	Failed  int    `json:"failed"`  // not tried again
	Pending bool   `json:"pending"` // changes are still to be posted
	Source  string `json:"source,omitempty"`
	Reason  string `json:"reason,omitempty"` // of the first that is not posted, as in CheckRun
	Error   string `json:"error,omitempty"`
}

// Problem says in one line what could not be posted, why, and what helps; "" when nothing is wrong.
func (c *Checks) Problem() string {
	if c == nil || c.Waiting+c.Failed == 0 {
		return ""
	}
	text := fmt.Sprintf("%d not posted: %s", c.Waiting+c.Failed, c.Error)
	switch {
	case c.Reason == "denied" && c.Source != "":
		text += "; kici source set-token " + c.Source
	case c.Failed == 0:
		text += "; tried again"
	}
	return text
}

// CheckRunQuery narrows a list of commit statuses. Zero fields mean "any".
type CheckRunQuery struct {
	Run     string // as Run takes it
	Failing bool   // only those that could not be posted
	Limit   int    // 100 is the most
}

// CheckRuns lists commit statuses.
func (c *Client) CheckRuns(ctx context.Context, q CheckRunQuery) (out CheckRunList, err error) {
	v := map[string][]string{}
	set(v, "run", q.Run)
	if q.Failing {
		set(v, "failing", "true")
	}
	page(v, "", q.Limit)
	return out, c.get(ctx, admin+"/check-runs", v, &out)
}
