package dispatch

import (
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/db"
)

func (w *world) history(shape string) []db.TimelineReasonsRow {
	w.t.Helper()
	rows, err := w.st.Read().TimelineReasons(ctx, shape, w.now.Load()+1, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// Why jobs waited is kept, one row for each change of the kinds of reasons, and the end of the wait; not for each change of a count.
func TestHistoryOfReasons(t *testing.T) {
	w := sqlite(t)
	first := w.insert(job("a", "linux"))
	shape := w.job(first, "a").Shape
	w.place()
	rows := w.history(shape)
	if len(rows) != 1 || kindsOf(rows[0].Reasons) == "" {
		t.Fatalf("nothing can run it: %+v", rows)
	}
	w.pass(time.Second)
	second := w.insert(job("a", "linux"))
	w.place() // one more waits for the same: no news
	if got := w.history(shape); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	w.pass(time.Second)
	w.static("agent-1", "mac")
	w.place() // something is there, and does not fit: another kind
	got := w.history(shape)
	if len(got) != 2 || kindsOf(got[0].Reasons) == kindsOf(got[1].Reasons) {
		t.Fatalf("%+v", got)
	}
	w.pass(time.Second)
	w.static("agent-2", "linux")
	w.static("agent-3", "linux")
	w.place()
	w.pass(time.Second)
	w.place()
	if !w.job(first, "a").AgentID.Valid || !w.job(second, "a").AgentID.Valid {
		t.Fatal("the jobs are to be assigned")
	}
	got = w.history(shape)
	if got[len(got)-1].Reasons != noReasons {
		t.Fatalf("the wait does not end: %+v", got)
	}
}

func TestKindsOfReasons(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "[]": "", `[{"kind":"cap","text":"8 of 8"},{"kind":"busy"},{"kind":"cap","text":"other"}]`: "busy cap",
	} {
		if got := kindsOf(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
