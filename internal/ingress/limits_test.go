package ingress

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

// As many deliveries of an organisation go on as may; the others wait their turn, for three seconds at most, and a limit that is
// raised meanwhile counts at once (ING-19, XC-7).
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(Settings{MaxInFlight: 8, MaxBodiesBytes: 1})
		var most atomic.Int64
		most.Store(1)
		enter := func(ctx context.Context, org string) (func(), string) {
			return a.place(ctx, org, func() int { return int(most.Load()) })
		}
		first, refused := enter(t.Context(), "acme")
		if refused != "" {
			t.Fatal(refused)
		}
		other, refused := enter(t.Context(), "other")
		if refused != "" {
			t.Errorf("another organisation waits: %s", refused)
		}
		other()
		order := make(chan int, 3)
		leaves := make(chan func(), 3)
		for i := range 3 {
			go func() {
				leave, refused := enter(t.Context(), "acme")
				if refused != "" {
					t.Errorf("%d: %s", i, refused)
				}
				order <- i
				leaves <- leave
			}()
			synctest.Wait() // they come one after the other
		}
		time.Sleep(time.Second)
		first()
		synctest.Wait()
		if len(order) != 1 || <-order != 0 {
			t.Error("not the first one that waits, and it alone, goes on")
		}
		most.Store(2)
		(<-leaves)()
		synctest.Wait()
		if len(order) != 2 {
			t.Errorf("%d go on after the limit was raised to two", len(order))
		}
		gone, cancel := context.WithCancel(t.Context())
		go func() {
			if _, refused := enter(gone, "acme"); refused != orgWaited {
				t.Errorf("a sender that is gone: %q", refused)
			}
		}()
		synctest.Wait()
		cancel()
		began := time.Now()
		if _, refused := enter(t.Context(), "acme"); refused != orgWaited || time.Since(began) != longestWait {
			t.Errorf("%q after %s", refused, time.Since(began))
		}
		(<-leaves)()
		(<-leaves)()
		if len(a.places.byOrg) != 0 {
			t.Errorf("places stay: %+v", a.places.byOrg)
		}
	})
}

// Where there are several organisations, one has at most half of the server's places, those that wait counted.
func TestXC7PlacesOfOthers(t *testing.T) {
	a := newAdmission(Settings{MaxInFlight: 8, MaxBodiesBytes: 1})
	most := func() int { return 8 }
	for _, c := range []struct {
		orgs int64
		want int
	}{{1, 8}, {2, 4}} {
		a.orgs = c.orgs
		var leaves []func()
		for {
			leave, refused := a.place(t.Context(), "acme", most)
			if refused != "" {
				if refused != orgFull || len(leaves) != c.want {
					t.Errorf("%d organisations: %q after %d", c.orgs, refused, len(leaves))
				}
				break
			}
			leaves = append(leaves, leave)
		}
		for _, leave := range leaves {
			leave()
		}
	}
}

// liveLimits may be changed while the intake runs.
func liveLimits(l *atomic.Pointer[Limits]) func(*Deps) {
	l.Store(&Limits{ForgeBytes: 1 << 20, DedupTTL: time.Hour, KeptBytes: 1 << 20, LockBytes: source.MaxFileBytes, Claim: time.Minute, Concurrency: func(string) int { return 4 }})
	return func(d *Deps) { d.Limits = func() Limits { return *l.Load() } }
}

func changed(l *atomic.Pointer[Limits], f func(*Limits)) {
	next := *l.Load()
	f(&next)
	l.Store(&next)
}

// A body that is larger than what is kept goes when its delivery is done, and stays when it failed (ING-22).
func TestKeptBytesWhileRunning(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		var l atomic.Pointer[Limits]
		w := newWorld(t, st, liveLimits(&l)).run()
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		body := func(id string) (string, int64) {
			row := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", sha), id).DeliveryID)
			b, err := st.Read().ReadDeliveryBody(t.Context(), row.ID)
			if err != nil || row.Status != statusProcessed || row.Matched != 1 {
				t.Errorf("%s: %+v %v", id, row, err)
			}
			return b.BodyEncoding + ":" + string(b.Body), row.BodySize
		}
		kept, size := body("one")
		if !strings.Contains(kept, sha) || size == 0 {
			t.Errorf("%q, %d bytes", kept, size)
		}
		changed(&l, func(l *Limits) { l.KeptBytes = size - 1 })
		if got, again := body("two"); got != "omitted:" || again != size {
			t.Errorf("%q, %d bytes", got, again)
		}
		failed := w.delivery(w.signed("demo", secret, "push", "three", []byte(`{"ref":"refs/heads/main","after":"`+strings.Repeat("1", 40)+`"}`)).DeliveryID)
		if b, err := st.Read().ReadDeliveryBody(t.Context(), failed.ID); err != nil || failed.Status != statusFailed || len(b.Body) == 0 {
			t.Errorf("%s: %q %v", failed.Status, b.Body, err)
		}
	})
}

func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		size   int64
		status string
		want   bool
	}{{10, statusProcessed, false}, {11, statusProcessed, true}, {11, statusSkipped, true}, {11, statusMissing, true}, {11, statusFailed, false}} {
		if got := forgotten(db.Delivery{BodySize: c.size}, outcome{status: c.status}, 10); got != c.want {
			t.Errorf("%d bytes, %s: %t", c.size, c.status, got)
		}
	}
}

// A limit on lock files counts for what is in memory already (LOCK-6).
func TestLockBytesWhileRunning(t *testing.T) {
	var l atomic.Pointer[Limits]
	w := newWorld(t, storetest.SQLite(t), liveLimits(&l)).run()
	r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push") + "# " + strings.Repeat("long ", 300) + "\n"})
	secret := w.source("demo", r.dir)
	push := func(id string) string {
		d := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", sha), id).DeliveryID)
		return d.Status + " " + d.Error
	}
	if got := push("one"); got != "processed " {
		t.Fatal(got)
	}
	changed(&l, func(l *Limits) { l.LockBytes = 1024 })
	if got := push("two"); !strings.HasPrefix(got, statusCorrupt) || !strings.Contains(got, "lockFileMaxBytes") {
		t.Errorf("%s", got)
	}
	changed(&l, func(l *Limits) { l.LockBytes = source.MaxFileBytes })
	if got := push("three"); got != "processed " {
		t.Errorf("%s", got)
	}
}

// The life of a claim is what holds when it is taken (ING-18).
func TestClaimWhileRunning(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		var l atomic.Pointer[Limits]
		w := newWorld(t, st, liveLimits(&l))
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		w.in.queue.open()
		for i, life := range []time.Duration{time.Hour, time.Minute} {
			id := []string{"one", "two"}[i]
			changed(&l, func(l *Limits) { l.Claim = life })
			got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), id)
			if got.code != http.StatusAccepted {
				t.Fatalf("%+v", got)
			}
			w.in.dequeue(<-w.in.queue.ready)
			due, err := st.Read().ClaimableDelivery(t.Context(), time.Now().Add(30*time.Minute).UnixMilli())
			if err != nil || len(due) != i || i > 0 && due[0] != got.ID {
				t.Errorf("in half an hour after a claim of %s: %v %v", life, due, err)
			}
		}
	})
}
