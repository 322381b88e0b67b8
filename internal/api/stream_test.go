package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func (r *rig) client() *client.Client {
	r.t.Helper()
	transport := &http.Transport{}
	r.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: r.server.URL, Token: "owner", HTTP: &http.Client{Transport: transport}})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// A run is followed from its first state to its last through the real client.
func TestFollowRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		id := r.Run(readtest.NewRun{Jobs: []lock.Job{readtest.Job("build")}})
		build := r.JobID(id, "build")
		var seen []string
		err := r.client().FollowRun(ctx, readtest.Repo+"#1", func(d client.RunDetail) error {
			state := d.Status + "/" + d.Jobs[0].Status
			seen = append(seen, state)
			switch state {
			case "pending/queued":
				if d.Jobs[0].AgentID == "" {
					r.Agent("a1", build)
					r.Online("a1")
					r.Assign(id, build, "a1")
					r.Start(id, build, "a1")
				}
			case "running/running":
				r.Finish(build, "a1", ci.JobSuccess)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if seen[len(seen)-1] != "success/success" || !slices.Contains(seen, "running/running") {
			t.Errorf("seen %v", seen)
		}
	})
}

// The whole log of a job is delivered once and in order, while it is written and across a broken connection.
func TestFollowJobLog(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	id := r.Run(readtest.NewRun{})
	build := r.JobID(id, "build")
	r.Agent("a1", build)
	r.Online("a1")
	r.Assign(id, build, "a1")
	r.Start(id, build, "a1")
	step := func(seq int64, index int, status string) {
		r.Step(id, build, "a1", wire.StepStatus{Seq: seq, StepIndex: index, Name: "s", Status: status, StartedAt: 1, FinishedAt: 2})
	}
	say := func(step int, lines ...string) {
		r.logs.add(build, step, lines...)
		r.Store.Publish(store.TopicLogs, build)
	}
	step(2, 0, "running")
	say(0, "a")
	var got []string
	err := r.client().FollowJobLog(ctx, build, "", func(l client.StepLine, _ string) error {
		got = append(got, l.Msg)
		switch l.Msg {
		case "a":
			r.server.CloseClientConnections() // the client must come back at the cursor
			say(0, "b")
			step(3, 0, "success")
			step(4, 1, "running")
			say(1, "c")
		case "c":
			say(1, "d")
			step(5, 1, "success")
			r.Finish(build, "a1", ci.JobSuccess)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	page, err := r.client().StepLog(ctx, id, "build", 1, "", 1)
	if err != nil || len(page.Lines) != 1 || page.Complete {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = r.client().StepLog(ctx, id, "build", 1, page.NextCursor, 10)
	if err != nil || len(page.Lines) != 1 || !page.Complete {
		t.Errorf("%+v, %v", page, err)
	}
	resp, err := r.client().RawLog(ctx, id, "build", 1)
	if err != nil {
		t.Fatal(err)
	}
	if text := bodyText(t, &http.Response{Body: resp}); text != "c\nd\n" {
		t.Errorf("raw log %q", text)
	}
}

// Open streams end with the request, and their number is bounded.
func TestStreamsAreBounded(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	for range maxStreams {
		r.api.streams <- struct{}{}
	}
	status, text := r.do("GET", admin+"/runs/"+id+"/events", "owner", "")
	if status != 503 || !strings.Contains(text, "too many open streams") {
		t.Errorf("%d %s", status, text)
	}
	<-r.api.streams
	ctx, cancel := context.WithCancel(context.Background())
	err := r.client().FollowRun(ctx, id, func(client.RunDetail) error { cancel(); return nil })
	if ctx.Err() == nil || err == nil {
		t.Errorf("follow ended by itself: %v", err)
	}
}

func TestForeignCursor(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	for _, cursor := range []string{"junk", "1.x.y", "1.-1.a"} {
		status, text := r.do("GET", admin+"/jobs/"+r.JobID(id, "build")+"/logs/stream?cursor="+cursor, "owner", "")
		if status != 400 {
			t.Errorf("%s: %d %s", cursor, status, text)
		}
	}
}
