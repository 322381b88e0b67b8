package event

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

// Whatever dies, hangs, fails or comes late between any two steps: every event is routed, and starts each workflow that waits for it
// exactly once (EVT-11, EVT-12, EVT-17, EVT-18).
func TestEveryEventStartsEachWorkflowOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, storetest.SQLite(t))
		w.limits.MaxAttempts = 3
		ids := w.register(keyA, "a", flow("w1", onEvent("x")), flow("w2", onEvent("x"), onEvent("y")), flow("w3", onEvent("y")))
		want := map[string][]string{"x": {ids["w1"], ids["w2"]}, "y": {ids["w2"], ids["w3"]}, "z": nil}
		regs := []string{ids["w1"], ids["w2"], ids["w3"]}
		nodes := []*Service{w.s, w.node("n2")}
		var emitted []string
		var held []db.KiciEvent // leases of servers that hang
		holder := map[string]*Service{}
		key := func(e db.KiciEvent) string { return fmt.Sprint(e.ID, e.Attempts) }
		node := func(rt *rapid.T) *Service { return rapid.SampledFrom(nodes).Draw(rt, "node") }

		rt.Repeat(map[string]func(*rapid.T){
			"emit": func(rt *rapid.T) {
				emitted = append(emitted, w.emit(Emit{Name: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "name")}))
			},
			"route": func(rt *rapid.T) {
				if _, err := node(rt).look(ctx); err != nil {
					rt.Fatalf("look: %v", err)
				}
			},
			"lease and hang": func(rt *rapid.T) {
				n := node(rt)
				for _, e := range w.lease(n.d.InstanceID) {
					held = append(held, e)
					holder[key(e)] = n
				}
			},
			"go on": func(rt *rapid.T) { // perhaps much too late
				if len(held) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(held)-1).Draw(rt, "held")
				e := held[i]
				held = slices.Delete(held, i, i+1)
				holder[key(e)].handle(ctx, ctx, e)
			},
			"die": func(rt *rapid.T) {
				if len(held) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(held)-1).Draw(rt, "held")
				held = slices.Delete(held, i, i+1)
			},
			"die after one target": func(rt *rapid.T) {
				if len(held) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(held)-1).Draw(rt, "held")
				e, n := held[i], holder[key(held[i])]
				held = slices.Delete(held, i, i+1)
				f, _, err := n.gather(ctx, e)
				if err != nil {
					rt.Fatalf("gather: %v", err)
				}
				for _, t := range decide(f).targets[:min(1, len(decide(f).targets))] {
					p, err := n.plan(ctx, f, t)
					if err != nil {
						continue
					}
					err = n.commit(ctx, e, []write{{registration: t.reg.ID, run: p}}, ending{open: true})
					if err != nil && !errors.Is(err, errLost) && !errors.Is(err, errBroken) {
						rt.Fatalf("commit: %v", err)
					}
				}
			},
			"break": func(rt *rapid.T) {
				faults := rapid.SampledFrom([]map[string]error{w.fail, w.insert}).Draw(rt, "faults")
				faults[rapid.SampledFrom(regs).Draw(rt, "registration")] = errBroken
			},
			"mend": func(*rapid.T) { clear(w.fail); clear(w.insert) },
			"wait": func(rt *rapid.T) {
				w.pass(time.Duration(rapid.IntRange(1, 90).Draw(rt, "seconds")) * time.Second)
			},
			"scan": func(*rapid.T) { w.scan() },
			"retry the dead": func(rt *rapid.T) {
				for _, id := range emitted {
					if State(w.event(id)) == StateDead {
						if err := w.s.RetryDead(ctx, "acme", id); err != nil {
							rt.Fatalf("retry: %v", err)
						}
					}
				}
			},
			"": func(rt *rapid.T) { onlyOnce(rt, w, emitted, want) },
		})

		// Left to settle, all is routed.
		clear(w.fail)
		clear(w.insert)
		for range 4 {
			w.pass(6 * time.Minute)
			w.scan()
			w.look()
			for _, id := range emitted {
				if State(w.event(id)) == StateDead {
					if err := w.s.RetryDead(ctx, "acme", id); err != nil {
						rt.Fatalf("retry: %v", err)
					}
				}
			}
		}
		for _, id := range emitted {
			e := w.event(id)
			started := w.started(id)
			if State(e) != StateProcessed || len(started) != len(want[e.EventName]) || e.MatchedCount.Int64 != int64(len(started)) {
				rt.Fatalf("event %s is %s with %d runs (%d counted), want %d: %s", e.EventName, State(e), len(started), e.MatchedCount.Int64, len(want[e.EventName]), e.LastError)
			}
		}
		onlyOnce(rt, w, emitted, want)
	})
}

var errBroken = errors.New("broken")

// onlyOnce checks that no workflow was started twice by an event, and none by an event that it does not wait for.
func onlyOnce(rt *rapid.T, w *world, emitted []string, want map[string][]string) {
	total := 0
	for _, id := range emitted {
		e := w.event(id)
		for reg := range w.started(id) {
			total++
			if !slices.Contains(want[e.EventName], reg) {
				rt.Fatalf("event %s started %s", e.EventName, reg)
			}
		}
	}
	if runs := len(w.allRuns()); runs != total {
		rt.Fatalf("%d runs for %d claims", runs, total)
	}
}
