package read_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestCheckRuns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w, r := readtest.New(t, st), reads(st)
		old := w.Run(readtest.NewRun{Checks: true})
		other := w.Run(readtest.NewRun{Checks: true, Repo: "acme/site", Key: readtest.Other})
		plain := w.Run(readtest.NewRun{})
		put := func(at int64, run, name, state, why string, gaveUp bool) {
			row := db.PutCommitStatusParams{RunID: run, Context: name, OrgID: readtest.Org, Sha: "1a2b", State: state, Wanted: "pending", CreatedAt: at}
			if why != "" {
				row.Attempts, row.Reason, row.LastError, row.FailingSince = 2, "denied", why, sql.NullInt64{Int64: at, Valid: true}
			}
			row.GaveUpAt = sql.NullInt64{Int64: at, Valid: gaveUp}
			w.Write(func(tx *store.Tx) error { return tx.PutCommitStatus(context.Background(), row) })
		}
		put(1, old, "kici/ci", "pending", "", false)
		put(1, old, "kici/ci/job/a", "", "refused", false)
		put(1, old, "kici/ci/job/b", "", "refused", true)
		put(2, other, "kici/ci", "pending", "", false)
		scoped := read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}
		for name, c := range map[string]struct {
			s    read.Scope
			f    read.CheckRunFilter
			want []string
		}{
			"all":              {scope, read.CheckRunFilter{}, []string{"kici/ci", "kici/ci", "kici/ci/job/a", "kici/ci/job/b"}},
			"a run":            {scope, read.CheckRunFilter{Run: old}, []string{"kici/ci", "kici/ci/job/a", "kici/ci/job/b"}},
			"failing":          {scope, read.CheckRunFilter{Failing: true}, []string{"kici/ci/job/a", "kici/ci/job/b"}},
			"failing of a run": {scope, read.CheckRunFilter{Run: old, Failing: true}, []string{"kici/ci/job/a", "kici/ci/job/b"}},
			"few":              {scope, read.CheckRunFilter{Limit: 1}, []string{"kici/ci"}},
			"scoped":           {scoped, read.CheckRunFilter{}, []string{"kici/ci"}},
			"nobody":           {read.Scope{OrgID: "else"}, read.CheckRunFilter{}, nil},
		} {
			list, err := r.CheckRuns(t.Context(), c.s, c.f)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range list.CheckRuns {
				got = append(got, x.Context)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
		if _, err := r.CheckRuns(t.Context(), scoped, read.CheckRunFilter{Run: old}); !errors.Is(err, read.ErrForbidden) {
			t.Errorf("another source's run: %v", err)
		}
		d, err := r.Run(t.Context(), scope, old)
		want := client.Checks{Posted: 1, Waiting: 1, Failed: 1, Pending: true, Reason: "denied", Error: "refused"}
		if err != nil || d.Checks == nil || *d.Checks != want {
			t.Errorf("summary %+v, %v; want %+v", d.Checks, err, want)
		}
		if d, err := r.Run(t.Context(), scope, plain); err != nil || d.Checks != nil {
			t.Errorf("a run without statuses has %+v, %v", d.Checks, err)
		}
	})
}
