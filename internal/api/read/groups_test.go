package read_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// What is held back is listed by its group, in the order in which it will go on, and by its fan-out; of one organisation and source.
func TestHeldIsListedByWhatHoldsIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w, r, ctx := readtest.New(t, st), reads(st), context.Background()
		var ids []string
		for range 3 {
			ids = append(ids, w.Run(readtest.NewRun{Concurrency: &lock.Concurrency{Group: "prod"}}))
		}
		w.Run(readtest.NewRun{Concurrency: &lock.Concurrency{Group: "alone"}})
		w.Run(readtest.NewRun{Key: readtest.Other, Repo: "acme/site", Concurrency: &lock.Concurrency{Group: "prod"}})
		wide := readtest.Job("test")
		wide.Matrix = &lock.Matrix{Dimensions: map[string][]json.RawMessage{"n": {[]byte("1"), []byte("2"), []byte("3")}}, Order: []string{"n"}}
		wide.MaxParallel = 1
		fan := w.Run(readtest.NewRun{Jobs: []lock.Job{wide}})

		h, err := r.Held(ctx, scope)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, g := range h.Groups {
			said = append(said, fmt.Sprintf("%s %s %d: %d hold, %d wait", g.RoutingKey, g.Key, g.Max, len(g.Holders), len(g.Waiters)))
		}
		want := []string{readtest.Key + " prod 1: 1 hold, 2 wait", readtest.Key + " alone 1: 1 hold, 0 wait", readtest.Other + " prod 1: 1 hold, 0 wait"}
		if !slices.Equal(said, want) || h.Waiting != 2 {
			t.Errorf("%d wait: %q, want %q", h.Waiting, said, want)
		}
		if g := h.Groups[0]; g.Holders[0].RunID != ids[0] || g.Waiters[0].RunID != ids[1] || g.Waiters[1].RunID != ids[2] || g.Waiters[0].Until == nil {
			t.Errorf("%+v", g)
		}
		if len(h.Turns) != 1 || h.Turns[0].RunID != fan || h.Turns[0].Held != 2 || h.Turns[0].Max != 1 {
			t.Errorf("%+v", h.Turns)
		}
		if h, err := r.Held(ctx, read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}); err != nil || len(h.Groups) != 1 || len(h.Turns) != 0 {
			t.Errorf("one source: %+v, %v", h, err)
		}
		if h, err := r.Held(ctx, read.Scope{OrgID: "other"}); err != nil || len(h.Groups)+len(h.Turns) != 0 {
			t.Errorf("another organisation: %+v, %v", h, err)
		}
	})
}
