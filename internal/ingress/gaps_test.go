package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestCompareHeads(t *testing.T) {
	known := func(ref, sha, pending string) db.SourceHeadsRow {
		return db.SourceHeadsRow{Ref: ref, Sha: sha, Pending: pending}
	}
	const main, tag = "refs/heads/main", "refs/tags/v1"
	for name, x := range map[string]struct {
		known []db.SourceHeadsRow
		seen  map[string]string
		first bool
		want  headMoves
	}{
		"nothing anywhere":       {nil, nil, true, headMoves{}},
		"first look records":     {nil, map[string]string{main: "a", tag: "b", "refs/pull/1/head": "c"}, true, headMoves{Record: []headAt{{main, "", "a"}, {tag, "", "b"}}}},
		"as recorded":            {[]db.SourceHeadsRow{known(main, "a", "")}, map[string]string{main: "a"}, false, headMoves{}},
		"moved, seen once":       {[]db.SourceHeadsRow{known(main, "a", "")}, map[string]string{main: "b"}, false, headMoves{Suspect: []headAt{{main, "a", "b"}}}},
		"moved, seen twice":      {[]db.SourceHeadsRow{known(main, "a", "b")}, map[string]string{main: "b"}, false, headMoves{Missed: []headAt{{main, "a", "b"}}}},
		"moved on meanwhile":     {[]db.SourceHeadsRow{known(main, "a", "b")}, map[string]string{main: "c"}, false, headMoves{Suspect: []headAt{{main, "a", "c"}}}},
		"moved back":             {[]db.SourceHeadsRow{known(main, "a", "b")}, map[string]string{main: "a"}, false, headMoves{Record: []headAt{{main, "a", "a"}}}},
		"new":                    {nil, map[string]string{main: "a"}, false, headMoves{Suspect: []headAt{{main, "", "a"}}}},
		"new, seen twice":        {[]db.SourceHeadsRow{known(main, "", "a")}, map[string]string{main: "a"}, false, headMoves{Missed: []headAt{{main, "", "a"}}}},
		"gone":                   {[]db.SourceHeadsRow{known(main, "a", "")}, map[string]string{}, false, headMoves{Gone: []string{main}}},
		"known before the first": {[]db.SourceHeadsRow{known(main, "a", "")}, map[string]string{main: "b", tag: "c"}, true, headMoves{Record: []headAt{{tag, "", "c"}}, Suspect: []headAt{{main, "a", "b"}}}},
	} {
		if got := compareHeads(x.known, x.seen, x.first); fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

func TestCompareHeadsIsBounded(t *testing.T) {
	many := func(kind string, n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf("refs/%s/%05d", kind, i)] = "a"
		}
		return out
	}
	tags := many("tags", 3000)
	tags["refs/heads/main"] = "a"
	if m := compareHeads(nil, tags, true); len(m.Record) != 1 || !strings.Contains(m.Note, "only its branches") {
		t.Errorf("many tags: %d recorded, %q", len(m.Record), m.Note)
	}
	m := compareHeads(nil, many("heads", 3000), true)
	if len(m.Record) != maxHeads || !strings.Contains(m.Note, "1000 of them") {
		t.Errorf("many branches: %d recorded, %q", len(m.Record), m.Note)
	}
	var known []db.SourceHeadsRow
	for _, h := range m.Record {
		known = append(known, db.SourceHeadsRow{Ref: h.Ref, Sha: h.SHA})
	}
	if m := compareHeads(known, many("heads", 3000), false); len(m.Record)+len(m.Suspect)+len(m.Missed)+len(m.Gone) != 0 {
		t.Errorf("the rest of a crowd is new at the second look: %d %d %d %d", len(m.Record), len(m.Suspect), len(m.Missed), len(m.Gone))
	}
	for i := range known {
		known[i].Sha, known[i].Pending = "old", "a"
	}
	if m := compareHeads(known, many("heads", maxHeads), false); len(m.Missed) != 0 || len(m.Record) != maxHeads || !strings.Contains(m.Note, "at once without a delivery") {
		t.Errorf("a mirror push: %d missed, %q", len(m.Missed), m.Note)
	}
}

// Whatever branches do: each ref is in one list at most; what stays the same for two looks is settled; nothing is missed that was not
// suspected first.
func TestCompareHeadsSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recorded := map[string]db.SourceHeadsRow{}
		look := func(seen map[string]string, first bool) headMoves {
			known := []db.SourceHeadsRow{}
			for _, k := range recorded {
				known = append(known, k)
			}
			m := compareHeads(known, seen, first)
			where := map[string]int{}
			for _, h := range slices.Concat(m.Record, m.Suspect, m.Missed) {
				where[h.Ref]++
			}
			for _, ref := range m.Gone {
				where[ref]++
			}
			for ref, n := range where {
				if n > 1 {
					t.Fatalf("%s is in %d lists: %+v", ref, n, m)
				}
			}
			for _, h := range m.Missed {
				if recorded[h.Ref].Pending != h.SHA {
					t.Fatalf("%+v was not suspected", h)
				}
			}
			for _, h := range slices.Concat(m.Record, m.Missed) {
				recorded[h.Ref] = db.SourceHeadsRow{Ref: h.Ref, Sha: h.SHA}
			}
			for _, h := range m.Suspect {
				recorded[h.Ref] = db.SourceHeadsRow{Ref: h.Ref, Sha: h.Was, Pending: h.SHA}
			}
			for _, ref := range m.Gone {
				delete(recorded, ref)
			}
			return m
		}
		heads := rapid.MapOf(rapid.SampledFrom([]string{"refs/heads/a", "refs/heads/b", "refs/tags/c", "refs/pull/1/head"}), rapid.SampledFrom([]string{"1", "2", "3"}))
		if m := look(heads.Draw(t, "first"), true); len(m.Suspect)+len(m.Missed) != 0 {
			t.Fatalf("the first look starts something: %+v", m)
		}
		for range rapid.IntRange(0, 6).Draw(t, "looks") {
			look(heads.Draw(t, "seen"), false)
		}
		last := heads.Draw(t, "last")
		look(last, false)
		look(last, false)
		if m := look(last, false); len(m.Record)+len(m.Suspect)+len(m.Missed)+len(m.Gone) != 0 {
			t.Fatalf("not settled: %+v", m)
		}
	})
}

// A push that the forge never delivered starts once, from what the forge has; when its delivery comes late it is skipped.
func TestMissedPushIsStarted(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		fw.run()
		one := fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		fw.look()
		if n := len(fw.runs()); n != 0 {
			t.Fatalf("the first look started %d runs", n)
		}
		two := fw.forge.Commit("refs/heads/main", "two", ciOn("push"))
		fw.look()
		if n := len(fw.runs()); n != 0 {
			t.Fatalf("a difference seen once started %d runs", n)
		}
		fw.look()
		fw.settled()
		runs := fw.runs()
		if len(runs) != 1 || runs[0].Sha != two || runs[0].Title != "two" {
			t.Fatalf("%+v", runs)
		}
		gap, err := st.Read().DeliveryBySenderID(t.Context(), "default", fw.routingKey()+":"+gapID("refs/heads/main", two))
		if err != nil || gap.Status != statusProcessed {
			t.Errorf("%+v %v", gap, err)
		}
		fw.look()
		fw.look()
		if got := fw.pushed("refs/heads/main", one, two, "late"); !strings.HasPrefix(got, statusSkipped) || !strings.Contains(got, gap.ID) {
			t.Errorf("the late delivery: %s", got)
		}
		three := fw.forge.Commit("refs/heads/main", "three", ciOn("push"))
		fw.pushed("refs/heads/main", two, three, "d3")
		fw.forge.Move("refs/heads/main", two)
		if got := fw.pushed("refs/heads/main", three, two, "back"); !strings.HasPrefix(got, statusProcessed) {
			t.Errorf("pushed back: %s", got)
		}
		fw.look()
		fw.look()
		fw.settled()
		if n := len(fw.runs()); n != 3 {
			t.Errorf("%d runs, want 3", n)
		}
	})
}

func (fw *forgeWorld) routingKey() string {
	row, err := fw.in.Get(context.Background(), "default", forgeName)
	if err != nil {
		fw.t.Fatal(err)
	}
	return row.RoutingKey
}

func TestDeliveryOnItsWayIsNotMissed(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		one := fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		two := fw.forge.Commit("refs/heads/main", "two", ciOn("push"))
		fw.look()
		got := fw.push(forgeName, fw.secret, pushOf("refs/heads/main", one, two), "d2") // it waits: nothing runs
		fw.look()
		fw.look()
		fw.run()
		fw.delivery(got.ID)
		fw.look()
		fw.look()
		fw.settled()
		if n := len(fw.runs()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
	})
}

// Delivered while kici's own delivery of it waits: one of them starts it, whichever is processed first.
func TestGapAndDeliveryTogetherStartOnce(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		one := fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		two := fw.forge.Commit("refs/heads/main", "two", ciOn("push"))
		fw.look()
		fw.look() // kici's own delivery waits: nothing runs yet
		got := fw.push(forgeName, fw.secret, pushOf("refs/heads/main", one, two), "d2")
		fw.run()
		fw.delivery(got.ID)
		fw.settled()
		fw.look()
		fw.look()
		fw.settled()
		if n := len(fw.runs()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
	})
}

func TestNewAndDeletedBranches(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		fw.run()
		fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		side := fw.forge.Commit("refs/heads/side", "side", ciOn("push"))
		fw.look()
		fw.look()
		fw.settled()
		if runs := fw.runs(); len(runs) != 1 || runs[0].Sha != side {
			t.Fatalf("%+v", runs)
		}
		fw.forge.Move("refs/heads/side", "")
		fw.look()
		fw.look()
		rows, err := st.Read().SourceHeads(t.Context(), strings.TrimPrefix(fw.routingKey(), "generic:default:"))
		if err != nil || len(rows) != 1 || len(fw.runs()) != 1 {
			t.Errorf("%+v %v", rows, err)
		}
	})
}

// What was pushed while a source was off was not missed.
func TestXC13PushesWhileASourceIsOffAreNotMissed(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		fw.run()
		fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		if err := fw.in.Enable(t.Context(), "default", forgeName, false); err != nil {
			t.Fatal(err)
		}
		fw.forge.Commit("refs/heads/main", "two", ciOn("push"))
		fw.look()
		if err := fw.in.Enable(t.Context(), "default", forgeName, true); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			e, err := fw.in.byName(t.Context(), "default", forgeName)
			return err == nil && e.row.Enabled
		})
		fw.look()
		fw.look()
		fw.settled()
		if n := len(fw.runs()); n != 0 {
			t.Errorf("%d runs", n)
		}
		three := fw.forge.Commit("refs/heads/main", "three", ciOn("push"))
		fw.look()
		fw.look()
		fw.settled()
		if runs := fw.runs(); len(runs) != 1 || runs[0].Sha != three {
			t.Errorf("%+v", runs)
		}
	})
}

// What triggers by hand tells is no gap either, and is never taken for one.
func TestTriggerIsNoGap(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	fw.run()
	fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
	fw.look()
	two := fw.forge.Commit("refs/heads/main", "two", ciOn("push"))
	fw.look()
	for range 2 {
		if _, err := fw.in.Trigger(t.Context(), TriggerRequest{OrgID: "default", Source: forgeName, Ref: "main", By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	fw.settled()
	fw.look()
	fw.look()
	fw.settled()
	if runs := fw.runs(); len(runs) != 2 || runs[0].Sha != two {
		t.Errorf("%+v", runs)
	}
}

func (fw *forgeWorld) poll() db.ReadSourcePollsRow {
	fw.t.Helper()
	rows, err := fw.st.Read().ReadSourcePolls(context.Background(), "default")
	if err != nil || len(rows) != 1 {
		fw.t.Fatal(rows, err)
	}
	return rows[0]
}

func TestLooksBackOff(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st, func(d *Deps) { d.Settings.GapEvery = 5 * time.Minute })
		fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		good := fw.poll()
		if good.PolledAt == 0 || good.Failures != 0 {
			t.Errorf("%+v", good)
		}
		fw.forge.Fail(fmt.Errorf("the token has expired: %w", source.ErrDenied))
		var pauses []time.Duration
		for range 6 {
			fw.ahead.Add(int64(2 * time.Hour))
			now := fw.deps.Env.Now().UnixMilli()
			fw.look()
			pauses = append(pauses, (time.Duration(fw.poll().NextAt-now) * time.Millisecond).Round(time.Minute))
		}
		bad := fw.poll()
		if bad.Failures != 6 || bad.PolledAt != good.PolledAt || !strings.Contains(bad.LastError, "set-token shop") {
			t.Errorf("%+v", bad)
		}
		if last := time.Duration(bad.NextAt-fw.deps.Env.Now().UnixMilli()) * time.Millisecond; last < 55*time.Minute || last > gapBackoff {
			t.Errorf("after %v the next look is in %s", pauses, last)
		}
		at := fw.deps.Env.Now().Add(7 * time.Hour)
		fw.forge.Fail(&source.RetryAt{At: at, Cause: source.ErrUnreachable})
		fw.ahead.Add(int64(2 * time.Hour))
		fw.look()
		if got := fw.poll().NextAt; got < at.Add(-time.Second).UnixMilli() {
			t.Errorf("next at %v, the forge said %v", time.UnixMilli(got), at)
		}
		fw.forge.Fail(nil)
		if err := fw.in.SetToken(t.Context(), "default", forgeName, "fresh"); err != nil {
			t.Fatal(err)
		}
		fw.look()
		if healed := fw.poll(); healed.Failures != 0 || healed.LastError != "" {
			t.Errorf("%+v", healed)
		}
	})
}

// What the forge could not deliver is asked for again, once; what is here is not. A refusal is shown and hinders nothing.
func TestMissedDeliveriesAreAskedForAgain(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st, func(d *Deps) { d.Settings.GapEvery = 5 * time.Minute })
		fw.run()
		sha := fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.pushed("refs/heads/main", "", sha, "here")
		at := time.Now().Add(time.Second)
		fw.forge.Miss(source.MissedDelivery{ID: "n-here", GUID: "here", At: at})
		fw.forge.Miss(source.MissedDelivery{ID: "n-lost", GUID: "lost", At: at})
		fw.forge.Miss(source.MissedDelivery{ID: "n-old", GUID: "old", At: at.Add(-time.Hour)})
		fw.look()
		if got := fw.forge.Redelivered(); !slices.Equal(got, []string{"n-lost"}) {
			t.Errorf("%v", got)
		}
		for range 4 {
			fw.ahead.Add(int64(10 * time.Minute))
			fw.look()
		}
		if got := fw.forge.Redelivered(); len(got) > 2 {
			t.Errorf("asked for again and again: %v", got)
		}
		fw.forge.FailLog(fmt.Errorf("the token may not read webhooks: %w", source.ErrDenied))
		fw.ahead.Add(int64(10 * time.Minute))
		fw.look()
		if p := fw.poll(); p.Failures != 0 || !strings.Contains(p.LastError, "may not read webhooks") {
			t.Errorf("%+v", p)
		}
	})
}

// A leader that was replaced writes nothing down; the next one looks when its term begins.
func TestOnlyTheLeaderLooks(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st, func(d *Deps) { d.Settings.GapEvery = time.Hour })
		fw.forge.Commit("refs/heads/main", "one", ciOn("push"))
		fw.look()
		before := fw.poll()
		err := st.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.TakeLeaderTerm(t.Context())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := fw.in.FillGaps(t.Context(), fw.term); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("an old term: %v", err)
		}
		fw.ahead.Add(int64(time.Second)) // the two looks are told apart by their instants
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- fw.in.FillGaps(ctx, fw.term+1) }()
		waitFor(t, func() bool { return fw.poll().PolledAt > before.PolledAt })
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func FuzzForgeWebhook(f *testing.F) {
	st := storetest.SQLite(f)
	forge := &sourcetest.Forge{}
	w := newWorld(f, st, func(d *Deps) {
		d.Factories[source.KindGitHub] = func(c source.Config) (source.Source, error) {
			forge.Configure(c, "main")
			return forge, nil
		}
	})
	added, err := w.in.AddForge(context.Background(), ForgeSource{OrgID: "default", Name: "hub", Kind: source.KindGitHub, Options: []byte(`{"repository":"a/b"}`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("push", "d1", []byte(`{"ref":"refs/heads/main"}`))
	f.Add("\x00", "\xff", []byte(`{`))
	f.Fuzz(func(t *testing.T, event, id string, body []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/webhook/default/github/hub", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["X-Event-Type"], req.Header["X-Delivery-Id"] = []string{event}, []string{id}
		req.Header.Set(source.SignatureHeader, source.Sign(added.Secret, body))
		switch got := w.do(req); got.code {
		case 200, 202, 400, 413, 429:
		default:
			t.Errorf("%+v", got)
		}
	})
}
