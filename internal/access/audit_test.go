package access

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestAuditWritesLater(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	ctx := t.Context()
	meta := map[string]any{"n": 1}
	f.Audit(ctx, Entry{Principal: f.owner, Action: "run.cancel", Target: "r1", Source: SourceHTTP, Outcome: Allowed, RequestID: "q", Meta: meta})
	f.Audit(ctx, Entry{Action: "tick", Source: SourceSystem, Outcome: Failed, Error: strings.Repeat("e", 5000)})
	if len(meta) != 1 {
		t.Error("the caller's map was changed")
	}
	for i := range 1200 {
		f.Audit(ctx, Entry{Principal: f.owner, Action: fmt.Sprint("a", i), Outcome: Allowed})
	}
	run(t, f)
	rows := accessLog(t, f)
	if len(rows) != 1201 {
		t.Fatalf("%d rows", len(rows))
	}
	first := rows[len(rows)-1]
	if first.Action != "run.cancel" || first.ActorKind != KindAPIKey || first.Actor != f.owner.TokenID || first.Meta != `{"label":"bootstrap","n":1}` || first.RequestID != "q" {
		t.Errorf("%+v", first)
	}
}

func run(t *testing.T, f *fixture) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func accessLog(t *testing.T, f *fixture) []db.AccessLog {
	t.Helper()
	rows, err := f.st.Read().AccessLog(t.Context(), db.AccessLogParams{OrgID: DefaultOrg, BeforeAt: 1 << 60, MaxRows: 5000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestXC152AuditSurvivesStore(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	if err := f.st.Close(); err != nil {
		t.Fatal(err)
	}
	for range entriesKept + 5 {
		f.Audit(t.Context(), Entry{Principal: f.owner, Action: "a", Outcome: Allowed}) // neither blocks nor fails
	}
	if err := f.flush(t.Context()); err == nil {
		t.Error("no error")
	}
	if n := len(f.audit.rows); n != entriesKept || f.AuditLost() != 5 {
		t.Errorf("%d rows wait, %d lost", n, f.AuditLost())
	}
}

func TestSampling(t *testing.T) {
	kept := 0
	for i := range 10_000 {
		e := Entry{Principal: Principal{TokenID: "t"}, RequestID: fmt.Sprint(i), Outcome: Allowed, Rate: 0.05}
		first, second := e.sampled(), e.sampled()
		if first != second {
			t.Fatal("not stable")
		}
		if first {
			kept++
		}
		for _, never := range []Entry{
			{Principal: e.Principal, RequestID: e.RequestID, Outcome: DeniedEntry, Rate: 0.05},
			{Principal: e.Principal, RequestID: e.RequestID, Outcome: Failed, Rate: 0.05},
			{Principal: Principal{TokenID: "t", Kind: KindAgent}, RequestID: e.RequestID, Outcome: Allowed, Rate: 0.05},
			{Principal: e.Principal, RequestID: e.RequestID, Outcome: Allowed},
		} {
			if !never.sampled() {
				t.Fatalf("sampled away: %+v", never)
			}
		}
	}
	if kept < 350 || kept > 650 {
		t.Errorf("kept %d of 10000 at 5 %%", kept)
	}
}

func TestLastUseIsLazy(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	lastUse := func() int64 {
		row, err := f.st.Read().AdminToken(t.Context(), f.owner.TokenID)
		if err != nil {
			t.Fatal(err)
		}
		return row.LastUsedAt.Int64
	}
	if lastUse() != 0 {
		t.Error("written in the request")
	}
	run(t, f)
	first := lastUse()
	if first != f.now.Load() {
		t.Errorf("last use %d", first)
	}
	use := func(after time.Duration) {
		f.pass(after)
		if _, err := f.Authenticate(t.Context(), f.token); err != nil {
			t.Fatal(err)
		}
		run(t, f)
	}
	if use(time.Second); lastUse() != first {
		t.Error("a busy token is written each time")
	}
	if use(time.Minute); lastUse() == first {
		t.Error("not written after a minute")
	}
}
