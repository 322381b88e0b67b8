package client

import (
	"context"
	"net/url"
)

// Timeline is what happened to a run, oldest first.
type Timeline struct {
	RunID      string          `json:"runId"`
	Entries    []TimelineEntry `json:"entries"`
	NextCursor string          `json:"nextCursor,omitempty"`
	Cut        string          `json:"cut,omitempty"` // what is not shown, and why; "" when nothing is missing
}

// TimelineEntry is one thing that happened to a run or to one of its jobs.
type TimelineEntry struct {
	At    Time          `json:"at"`
	Until *Time         `json:"until,omitempty"` // of something that lasted: a wait
	Kind  string        `json:"kind"`
	JobID string        `json:"jobId,omitempty"` // "" is the run
	Job   string        `json:"job,omitempty"`   // its name
	Text  string        `json:"text"`            // a sentence
	Actor string        `json:"actor,omitempty"` // who: a person, an agent; "" is kici itself
	Link  *TimelineLink `json:"link,omitempty"`  // what it leads to
}

// TimelineLink names something else that an entry is about.
type TimelineLink struct {
	Kind string `json:"kind"` // run, event, delivery, agent
	ID   string `json:"id"`
}

// TimelineQuery asks for a page.
type TimelineQuery struct {
	Job    string // name or id; "" is all, and the run itself
	Steps  bool   // also steps that went well
	Cursor string
	Limit  int // 0 is 200; at most 1000
}

// Timeline is what happened to a run.
func (c *Client) Timeline(ctx context.Context, run string, q TimelineQuery) (out Timeline, err error) {
	v := url.Values{}
	set(v, "job", q.Job)
	if q.Steps {
		v.Set("steps", "true")
	}
	page(v, q.Cursor, q.Limit)
	return out, c.get(ctx, runPath(run)+"/timeline", v, &out)
}
