package read

import (
	"context"
	"fmt"
	"slices"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
)

// Group is a concurrency group in which somebody has a place or waits for one.
type Group struct {
	RoutingKey, Key string
	Max             int64 // places, as its oldest holder's workflow says
	Holders         []GroupMember
	Waiters         []GroupMember // in their order
}

// GroupMember is a run, or a job of it, in a concurrency group.
type GroupMember struct {
	RunID, JobID string // JobID is "" for the whole run
	Repo         string
	Number       int64
	Workflow     string
	Title        string
	Job          string // displayed name
	Since        client.Time
	Until        *client.Time // it is ended then if it still waits
	SupersededBy string       // who ended it, "" for nobody
	Promoted     bool         // it has its place and goes on in a moment
}

// Turn is jobs of one fan-out that wait for each other.
type Turn struct {
	RunID, Base string
	Repo        string
	Number      int64
	Workflow    string
	Held        int64
	Max         int64 // at once; 0 when they wait for something else
	Since       client.Time
}

// Held is what is held back although its needs are met: by concurrency groups, and by the windows of fan-outs.
type Held struct {
	Groups  []Group // those in which somebody waits first
	Turns   []Turn
	Waiting int // runs and jobs that wait for a group
}

// Bounds of what Held reads.
const (
	maxOpenSlots   = 2000
	maxHeldWindows = 100
)

// Held is everything of the caller's that is held back, at most maxOpenSlots places.
func (r *Reads) Held(ctx context.Context, s Scope) (Held, error) {
	var slots []db.ReadOpenSlotsRow
	var windows []db.ReadHeldFanoutsRow
	err := r.view(ctx, func(q *db.Queries) (err error) {
		if slots, err = q.ReadOpenSlots(ctx, s.OrgID, s.RoutingKey, maxOpenSlots); err != nil {
			return err
		}
		windows, err = q.ReadHeldFanouts(ctx, s.OrgID, s.RoutingKey, maxHeldWindows)
		return err
	})
	if err != nil {
		return Held{}, fmt.Errorf("read what is held: %w", err)
	}
	var out Held
	for _, x := range slots {
		n := len(out.Groups)
		if n == 0 || out.Groups[n-1].Key != x.GroupKey || out.Groups[n-1].RoutingKey != x.RoutingKey {
			out.Groups = append(out.Groups, Group{RoutingKey: x.RoutingKey, Key: x.GroupKey, Max: x.Max})
		}
		if out.Groups[len(out.Groups)-1].add(x) {
			out.Waiting++
		}
	}
	slices.SortStableFunc(out.Groups, func(a, b Group) int { return min(len(b.Waiters), 1) - min(len(a.Waiters), 1) })
	for _, x := range windows {
		out.Turns = append(out.Turns, Turn{
			RunID: x.RunID, Base: x.BaseName, Repo: x.Repo, Number: x.Number, Workflow: x.Workflow, Held: x.Held, Max: x.MaxParallel, Since: client.TimeOf(x.Since),
		})
	}
	return out, nil
}

// add puts a place into its group and reports whether it is one that is waited for.
func (g *Group) add(x db.ReadOpenSlotsRow) bool {
	m := GroupMember{
		RunID: x.RunID, JobID: x.JobID, Repo: x.Repo, Number: x.Number, Workflow: x.Workflow, Title: x.Title,
		Job: first(x.JobDisplayName.String, x.JobName.String), Since: client.TimeOf(x.CreatedAt), SupersededBy: x.SupersededBy,
	}
	if x.State == "active" {
		m.Since, m.Promoted = client.TimeOf(x.ActivatedAt.Int64), !x.Begun
		if !x.ActivatedAt.Valid {
			m.Since = client.TimeOf(x.CreatedAt)
		}
		g.Holders = append(g.Holders, m)
		return false
	}
	m.Until = timePtr(x.WaitUntil)
	g.Waiters = append(g.Waiters, m)
	return true
}
