package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestADueScheduleEmitsItsInstant(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("due", "0 * * * *", "UTC", now-hour, now-1)
		w.add("later", "0 * * * *", "UTC", now, now+hour)
		s, term := w.server(), w.term()
		wait, err := s.Tick(t.Context(), term)
		if err != nil || wait <= 0 || wait > tickEvery {
			t.Fatal(wait, err)
		}
		fires := w.fires()
		instant := now / hour * hour
		if len(fires) != 1 || len(fires["due"]) != 1 || fires["due"][0] != format(instant) {
			t.Fatalf("%v, want %s", fires, format(instant))
		}
		r := w.row("due")
		if r.LastFiredAt != instant || r.NextAt.Int64 != instant+hour || r.LastEventID == "" {
			t.Errorf("%+v", r)
		}
		events, err := w.st.Read().EventsOfRun(t.Context(), "")
		if err != nil || len(events) != 1 {
			t.Fatal(events, err)
		}
		for _, want := range []string{
			`"cronExpression":"0 * * * *"`, `"timezone":"UTC"`, `"registrationId":"due"`, `"workflowName":"due"`, `"routingKey":"generic:default:1"`,
			`"repoIdentifier":"acme/shop"`, `"commitSha":"c0ffee"`, `"sourceFile":".kici/workflows/due.yaml"`,
		} {
			if !strings.Contains(events[0].Payload, want) {
				t.Errorf("no %s in %s", want, events[0].Payload)
			}
		}
		if events[0].ID != r.LastEventID || s.counted("cron_fires_total", "") != 1 {
			t.Errorf("%+v %+v", events[0], r)
		}
		if _, err := s.Tick(t.Context(), term); err != nil || len(w.fires()["due"]) != 1 {
			t.Error("it fired again", err)
		}
	})
}

func TestXC51SeveralMissedInstantsFireOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("hourly", "0 * * * *", "UTC", now-5*hour, now-4*hour)
		s, term := w.server(), w.term()
		for range 3 {
			if _, err := s.Tick(t.Context(), term); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.fires()["hourly"]; len(got) != 1 || got[0] != format(w.now()/hour*hour) {
			t.Errorf("%v", got)
		}
	})
}

// Two that both think they lead, and one that does not any more.
func TestXC52TwoLeadersFireOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		for i := range 40 {
			w.add(fmt.Sprint("s", i), "0 * * * *", "UTC", now-2*hour, now-hour)
		}
		old := w.term()
		term := w.term()
		var wg sync.WaitGroup
		for _, as := range []int64{term, term, term, old} {
			wg.Go(func() {
				s := w.server()
				for range 3 {
					if _, err := s.Tick(context.Background(), as); err != nil && (as != old || !errors.Is(err, store.ErrNotLeader)) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		fires := w.fires()
		if len(fires) != 40 {
			t.Errorf("%d of 40 fired", len(fires))
		}
		for id, at := range fires {
			if len(at) != 1 {
				t.Errorf("%s fired at %v", id, at)
			}
		}
	})
}

func TestXC53ClaimAndEventAreOneTransaction(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("a", "0 * * * *", "UTC", now-2*hour, now-hour)
		s, term := w.server(), w.term()
		crash := errors.New("crash")
		s.events.fail = func(Event) error { return crash }
		if _, err := s.Tick(t.Context(), term); !errors.Is(err, crash) {
			t.Fatal(err)
		}
		if r := w.row("a"); r.LastFiredAt != now-2*hour || r.NextAt.Int64 != now-hour || len(w.fires()) != 0 {
			t.Fatalf("%+v %v", r, w.fires())
		}
		s.events.fail = nil
		if _, err := s.Tick(t.Context(), term); err != nil || len(w.fires()["a"]) != 1 {
			t.Errorf("%v %v", w.fires(), err)
		}
	})
}

func TestXC55OneThatCannotFireDoesNotStopOthers(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("broken", "0 * * *", "UTC", now-2*hour, now-3*hour)
		w.add("lost", "0 * * * *", "Mars/Base", now-2*hour, now-3*hour)
		w.add("unlucky", "0 * * * *", "UTC", now-2*hour, now-2*hour)
		for i := range 5 {
			w.add(fmt.Sprint("good", i), "0 * * * *", "UTC", now-2*hour, now-hour)
		}
		s, term := w.server(), w.term()
		s.events.fail = func(e Event) error {
			if e.RegistrationID == "unlucky" {
				return errors.New("refused")
			}
			return nil
		}
		if _, err := s.Tick(t.Context(), term); err == nil || !strings.Contains(err.Error(), "unlucky") {
			t.Error(err)
		}
		if fires := w.fires(); len(fires) != 5 {
			t.Errorf("%v", fires)
		}
		if r := w.row("broken"); r.NextAt.Valid || !strings.Contains(r.Error, "fields") {
			t.Errorf("%+v", r)
		}
		if r := w.row("lost"); r.NextAt.Valid || !strings.Contains(r.Error, "zone") {
			t.Errorf("%+v", r)
		}
		if s.counted("cron_failures_total", "invalid") < 2 || s.counted("cron_failures_total", "error") < 1 {
			t.Errorf("failures %v %v", s.counted("cron_failures_total", "invalid"), s.counted("cron_failures_total", "error"))
		}
	})
}

func TestDisabledSchedulesDoNotFire(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("off", "0 * * * *", "UTC", now-2*hour, now-hour)
		w.write(func(tx *store.Tx) error {
			_, err := tx.SetRegistrationDisabled(context.Background(), true, "default", "off")
			return err
		})
		s, term := w.server(), w.term()
		wait, err := s.Tick(t.Context(), term)
		if err != nil || wait != tickEvery || len(w.fires()) != 0 || w.row("off").NextAt.Valid {
			t.Errorf("%v %v %v %+v", wait, err, w.fires(), w.row("off"))
		}
	})
}

// inBubble runs f in virtual time, from a start on the hour + 10 minutes.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.SQLiteDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, storetest.SQLite(t))
		time.Sleep(10 * time.Minute)
		f(t, w)
	})
}

func (w *world) lead(s *server, term int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, term); err != nil && !errors.Is(err, store.ErrNotLeader) {
			w.t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// The leader is there when the instant comes, not up to half a minute later.
func TestRunFiresOnTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		now := w.now()
		next := now/hour*hour + hour
		w.add("a", "0 * * * *", "UTC", now, next)
		emitted := map[string]int64{}
		s := w.server()
		s.events.fail = func(e Event) error { emitted[e.RegistrationID] = time.Now().UnixMilli(); return nil }
		stop := w.lead(s, w.term())
		time.Sleep(51 * time.Minute)
		stop()
		if got := emitted["a"]; got < next || got > next+1000 {
			t.Errorf("fired at %s, due at %s", format(got), format(next))
		}
	})
}

// A schedule that a registration has just made is seen by its notification.
func TestRunSeesNewSchedules(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.server()
		stop := w.lead(s, w.term())
		time.Sleep(time.Second)
		now := w.now()
		w.add("a", "* * * * * *", "UTC", now, now+1000)
		w.write(func(tx *store.Tx) error { tx.Notify(store.TopicRegistry, "default"); return nil })
		time.Sleep(5 * time.Second)
		stop()
		if n := len(w.fires()["a"]); n < 3 || n > 6 {
			t.Errorf("%d fires in 5 seconds", n)
		}
	})
}

// A night without a leader, then two in turn: every hour at most once, and the last of the night.
func TestRunAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("a", "0 * * * *", "UTC", now, now/hour*hour+hour)
		time.Sleep(8 * time.Hour)
		stop := w.lead(w.server(), w.term())
		time.Sleep(2 * time.Hour)
		stop()
		stop = w.lead(w.server(), w.term())
		time.Sleep(time.Hour)
		stop()
		got := w.fires()["a"]
		if len(got) != 4 {
			t.Errorf("%v", got)
		}
		seen := map[string]bool{}
		for _, at := range got {
			if seen[at] {
				t.Errorf("%s twice", at)
			}
			seen[at] = true
		}
	})
}

// A new leader gives every schedule the time that its own rules say (another version of time zones, of expressions).
func TestReviewCorrectsWhatOthersWrote(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		now := w.now()
		w.add("wrong time", "0 * * * *", "UTC", now, now+1000*hour)
		w.add("not due", "0 * * * *", "UTC", now, 0)
		w.add("never", "0 * * *", "UTC", now, now+hour)
		w.add("overdue", "0 * * * *", "UTC", now-3*hour, now-3*hour+1)
		s, term := w.server(), w.term()
		if err := s.review(t.Context(), term); err != nil {
			t.Fatal(err)
		}
		next := now/hour*hour + hour
		if w.row("wrong time").NextAt.Int64 != next || w.row("not due").NextAt.Int64 != next || w.row("never").NextAt.Valid || w.row("never").Error == "" {
			t.Errorf("%+v %+v %+v", w.row("wrong time"), w.row("not due"), w.row("never"))
		}
		if r := w.row("overdue"); r.NextAt.Int64 > now || r.LastFiredAt != now-3*hour {
			t.Errorf("%+v", r)
		}
		if err := s.review(t.Context(), term-1); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("an old leader reviews: %v", err)
		}
	})
}

func BenchmarkTick(b *testing.B) {
	st := storetest.SQLite(b)
	w := newWorld(b, st)
	now := w.now()
	w.write(func(tx *store.Tx) error {
		for i := range 10_000 {
			id := fmt.Sprint("s", i)
			ctx := context.Background()
			_, err := tx.UpsertRegistration(ctx, db.UpsertRegistrationParams{
				ID: id, OrgID: "default", RoutingKey: "k", Repo: "r", Workflow: id, LockEntry: strings.Repeat(" ", 2000), TriggerTypes: ",schedule,",
			})
			if err := errors.Join(err, tx.SeedSchedule(ctx, db.SeedScheduleParams{
				RegistrationID: id, Expression: fmt.Sprintf("%d %d * * *", i%60, i%24), Timezone: "Europe/Berlin", OrgID: "default", LastFiredAt: now, NextAt: nullInt(now + hour*24*365),
			})); err != nil {
				return err
			}
		}
		return nil
	})
	s, term := w.server(), w.term()
	b.Run("nothing due", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Tick(b.Context(), term); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("review", func(b *testing.B) {
		for b.Loop() {
			if err := s.review(b.Context(), term); err != nil {
				b.Fatal(err)
			}
		}
	})
}
