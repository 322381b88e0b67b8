package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/store"
)

// How many groups, and members of each, a page names.
const (
	groupsShown  = 30
	membersShown = 10
)

func (s *server) queue(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.queueView(r.Context(), c, r.URL.Query().Get("cursor"))
	if err != nil {
		return err
	}
	s.render(w, r, queuePage(v))
	return nil
}

func (s *server) queueView(ctx context.Context, c caller, cursor string) (queueView, error) {
	q, err := s.Reads.Queue(ctx, c.scope, read.QueueFilter{Cursor: cursor, Limit: 50})
	if err != nil {
		return queueView{}, err
	}
	v := queueView{page: s.frame(c, "queue", "Queue"), Queue: q, Cursor: cursor}
	if cursor == "" {
		if v.Held, err = s.Reads.Held(ctx, c.scope); err != nil {
			return v, err
		}
	}
	if !c.Can(access.ScalerRead) {
		return v, nil
	}
	sc, err := s.Reads.Scalers(ctx, c.scope)
	v.Scalers = sc.Scalers
	return v, err
}

func (s *server) queueLive(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.queueView(ctx, c, r.URL.Query().Get("cursor"))
		return queueBody(v), err
	}, topic{store.TopicQueue, ""}, topic{store.TopicRunList, c.OrgID}, topic{store.TopicScalers, ""}, topic{store.TopicGroups, ""})
}

// headline is followed by how long the oldest job waits, when one does.
func (v queueView) headline() string {
	switch {
	case v.Queue.Waiting > 0:
		return count(int(v.Queue.Waiting), "job waits", "jobs wait") + "; the oldest for"
	case v.Held.Waiting > 0:
		return "No job waits for an agent; " + count(v.Held.Waiting, "waits", "wait") + " for a concurrency group"
	case len(v.Held.Turns) > 0:
		return "No job waits for an agent; some wait for their turn"
	}
	return "Nothing waits"
}

// heldSummary says below the heading what is held back.
func (v queueView) heldSummary() (out []string) {
	if v.Held.Waiting > 0 && v.Queue.Waiting > 0 {
		out = append(out, count(v.Held.Waiting, "waits for a concurrency group", "wait for concurrency groups"))
	}
	return out
}

// oldest is since when the oldest job waits.
func (v queueView) oldest() *client.Time {
	return &client.Time{Time: time.Now().Add(-time.Duration(v.Queue.OldestMs) * time.Millisecond)}
}

func groupLine(g read.Group) string {
	line := count(int(g.Max), "place", "places")
	if n := len(g.Waiters); n > 0 {
		line += ", " + count(n, "waits", "wait")
	}
	return line
}

func hiddenMembers(g read.Group) int {
	return max(0, len(g.Holders)-membersShown) + max(0, len(g.Waiters)-membersShown)
}

func memberPath(m read.GroupMember) string {
	if m.JobID == "" {
		return "/runs/" + m.RunID
	}
	return "/runs/" + m.RunID + "/jobs/" + m.JobID
}

// memberName is acme/shop #12, and the job when it is one.
func memberName(m read.GroupMember) string {
	name := fmt.Sprintf("%s #%d", m.Repo, m.Number)
	if m.JobID != "" {
		name += " " + cmp.Or(m.Job, "a job")
	}
	return name
}

func holderWord(m read.GroupMember) string {
	switch {
	case m.SupersededBy != "":
		return "holds it, is being ended"
	case m.Promoted:
		return "holds it, goes on"
	}
	return "holds it"
}

func waiterClass(m read.GroupMember) string {
	if m.SupersededBy != "" {
		return "cancelled"
	}
	return "held"
}

func waiterWord(m read.GroupMember, i int) string {
	switch {
	case m.SupersededBy != "":
		return "is being ended"
	case i == 0:
		return "next"
	}
	return fmt.Sprintf("%d before it", i)
}

func turnLine(w read.Turn) string {
	if w.Max > 0 {
		return fmt.Sprintf("max-parallel is %d, and as many of the others have not ended", w.Max)
	}
	return "held until somebody lets it go on"
}
