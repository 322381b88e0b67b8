package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

// fakeSource makes local sources of the world Fakes over one repository, so that faults can be made at will and time can be virtual.
func fakeSource(f *sourcetest.Fake) func(*Deps) {
	return func(d *Deps) {
		d.Factories[KindLocal] = func(c source.Config) (source.Source, error) {
			f.Configure(c, "main")
			return f, nil
		}
	}
}

func TestXC1NothingIsAcknowledgedBeforeItsRowCommits(t *testing.T) {
	d := storetest.SQLiteDatabase(t)
	committing, release := make(chan struct{}), make(chan struct{})
	var armed sync.Once
	var arm bool
	d.Config.BeforeCommit = func() {
		if arm {
			armed.Do(func() {
				close(committing)
				<-release
			})
		}
	}
	w := newWorld(t, d.Open(t))
	r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
	secret := w.source("demo", r.dir)
	arm = true
	answered := make(chan reply, 1)
	go func() { answered <- w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1") }()
	<-committing
	select {
	case got := <-answered:
		t.Errorf("answered %d before the commit", got.code)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if got := <-answered; got.code != http.StatusAccepted {
		t.Errorf("%+v", got)
	}
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d2"); got.code != http.StatusInternalServerError || got.Accepted {
		t.Errorf("a store that is gone: %+v", got)
	}
}

func TestXC2AnotherNodeTakesOverWhatADeadOneAccepted(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		quick := func(d *Deps) { d.Settings.Lease = 300 * time.Millisecond }
		one := newWorld(t, st, quick)
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := one.source("demo", r.dir)
		one.in.queue.open() // born claimed by a process that never gets to it
		claimed := one.push("demo", secret, pushOf("refs/heads/main", "", sha), "claimed")
		one.in.queue.shut()
		free := one.push("demo", secret, pushOf("refs/heads/main", "", sha), "free")
		two := newWorld(t, st, quick, func(d *Deps) { d.InstanceID = "two"; d.Secrets = one.secrets })
		two.run()
		for _, id := range []string{claimed.DeliveryID, free.DeliveryID} {
			if d := two.delivery(id); d.Status != statusProcessed || d.Matched != 1 {
				t.Errorf("%+v", d)
			}
		}
		if n := len(two.runs()); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}

func TestXC2RestartTakesItsOwnClaimsBackAtOnce(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		w.in.queue.open()
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		<-w.in.queue.ready // the process dies with it in memory
		w.in.queue.cancel()
		began := time.Now()
		w.run()
		if d := w.delivery(got.DeliveryID); d.Status != statusProcessed {
			t.Errorf("%+v", d)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it waited %s for the claim to expire", took)
		}
	})
}

// Sixteen equal deliveries at two nodes at once: one row, one run, sixteen successes (XC-3, XC-15).
func TestXC3SameDeliverySixteenTimes(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		one := newWorld(t, st)
		two := newWorld(t, st, func(d *Deps) { d.InstanceID = "two"; d.Secrets = one.secrets })
		one.run()
		two.run()
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := one.source("demo", r.dir)
		var wg sync.WaitGroup
		answers := make([]reply, 16)
		for i := range answers {
			wg.Go(func() {
				answers[i] = []*world{one, two}[i%2].push("demo", secret, pushOf("refs/heads/main", "", sha), "same")
			})
		}
		wg.Wait()
		first := 0
		for _, a := range answers {
			switch {
			case a.code == http.StatusAccepted && !a.Duplicate:
				first++
			case a.code != http.StatusOK || !a.Duplicate || !a.Accepted:
				t.Errorf("%+v", a)
			}
		}
		d := one.delivery(answers[0].DeliveryID)
		if first != 1 || d.Duplicates != 15 || len(one.runs()) != 1 {
			t.Errorf("%d accepted, %d duplicates, %d runs", first, d.Duplicates, len(one.runs()))
		}
	})
}

func TestXC4RetryStartsNoWorkflowTwice(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		failures := 1
		w.deps.Runs.(*realRuns).fail = func(name string) error {
			if name == "c" && failures > 0 {
				failures--
				return errors.New("boom")
			}
			return nil
		}
		r, sha := newRepo(t, map[string]string{
			".kici/workflows/a.yaml": yaml("a", "push"), ".kici/workflows/b.yaml": yaml("b", "push"), ".kici/workflows/c.yaml": yaml("c", "push"),
		})
		secret := w.source("demo", r.dir)
		w.run()
		d := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1").DeliveryID)
		if d.Status != statusProcessed || d.Attempts != 2 || d.Matched != 3 || len(w.runs()) != 3 {
			t.Errorf("%+v and runs %s", d, w.workflows())
		}
	})
}

// The same when another worker had already committed some runs of the delivery and lost its claim: the keys hold.
func TestXC4ClaimLostAfterDispatch(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, sha := newRepo(t, map[string]string{".kici/workflows/a.yaml": yaml("a", "push")})
		secret := w.source("demo", r.dir)
		w.in.queue.open()
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		d := <-w.in.queue.ready
		w.in.queue.cancel()
		out, err := w.in.decide(t.Context(), &d)
		if err != nil {
			t.Fatal(err)
		}
		stolen := d
		stolen.Attempts++
		if err := w.in.finish(t.Context(), stolen, out); !errors.Is(err, errLostClaim) || len(w.runs()) != 0 {
			t.Errorf("finish without the claim: %v, runs %s", err, w.workflows())
		}
		if err := w.in.finish(t.Context(), d, out); err != nil {
			t.Error(err)
		}
		again, err := w.in.decide(t.Context(), &d)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.in.finish(t.Context(), d, again); !errors.Is(err, errLostClaim) || len(w.runs()) != 1 {
			t.Errorf("second finish: %v, runs %s", err, w.workflows())
		}
		if w.delivery(got.DeliveryID).Matched != 1 {
			t.Error("wrong delivery")
		}
	})
}

func TestXC5DeliveryThatAlwaysFailsEndsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		w := newWorld(t, storetest.SQLite(t), fakeSource(f))
		sha := f.Commit("refs/heads/main", "first", map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", "/x")
		w.run()
		f.Fail(fmt.Errorf("%w: the disk is away", source.ErrUnreachable))
		bad := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "bad")
		time.Sleep(500 * time.Millisecond)
		rows, _ := w.st.Read().ReadDelivery(t.Context(), "default", bad.ID)
		if rows[0].Status != statusReceived || !strings.Contains(rows[0].Error, "the disk is away") {
			t.Errorf("while it waits: %+v", rows[0])
		}
		time.Sleep(20 * time.Minute)
		d := w.delivery(bad.DeliveryID)
		if d.Status != statusFailed || d.Attempts != 10 || !strings.Contains(d.Error, "given up after 10 attempts") || !strings.Contains(d.Error, "the disk is away") {
			t.Errorf("%+v", d)
		}
		if len(w.runs()) != 0 {
			t.Error("it ran")
		}
		f.Fail(nil)
		if err := w.in.Replay(t.Context(), "default", d.ID); err != nil {
			t.Fatal(err)
		}
		if again := w.delivery(bad.DeliveryID); again.Status != statusProcessed || len(w.runs()) != 1 {
			t.Errorf("replayed: %+v", again)
		}
		if err := w.in.Replay(t.Context(), "default", d.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("replay of a processed delivery: %v", err)
		}
		w.halt()
	})
}

func TestXC5PanicDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		w := newWorld(t, storetest.SQLite(t), fakeSource(f), func(d *Deps) { d.Settings.Workers = 1 })
		sha := f.Commit("refs/heads/main", "first", map[string]string{
			".kici/workflows/ci.yaml": yaml("ci", "{push: {branches: [main]}}"), ".kici/workflows/tag.yaml": yaml("tag", "{push: {tags: ['*']}}"),
		})
		w.deps.Runs.(*realRuns).fail = func(name string) error {
			if name == "ci" {
				panic("a bug")
			}
			return nil
		}
		secret := w.source("demo", "/x")
		w.run()
		bad := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "bad")
		good := w.push("demo", secret, pushOf("refs/tags/v1", "", sha), "good")
		time.Sleep(time.Second)
		if d := w.delivery(good.DeliveryID); d.Status != statusProcessed || d.Matched != 1 {
			t.Errorf("%+v", d)
		}
		time.Sleep(time.Hour)
		if d := w.delivery(bad.DeliveryID); d.Status != statusFailed || !strings.Contains(d.Error, "a bug") {
			t.Errorf("%+v", d)
		}
		w.halt()
	})
}

func TestXC8BufferAtItsMaximumRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		var said bytes.Buffer
		w := newWorld(t, storetest.SQLite(t), fakeSource(f), func(d *Deps) {
			d.Settings.MaxOpen = 3
			d.Log = slog.New(slog.NewTextHandler(&said, nil))
		})
		sha := f.Commit("refs/heads/main", "first", nil)
		secret := w.source("demo", "/x")
		var last reply
		for i := range 4 {
			last = w.push("demo", secret, pushOf("refs/heads/main", "", sha), fmt.Sprint(i))
			if i < 3 && last.code != http.StatusAccepted {
				t.Fatalf("%d: %+v", i, last)
			}
		}
		if last.code != http.StatusTooManyRequests || last.header.Get("Retry-After") != "5" || last.Accepted {
			t.Errorf("%+v %v", last, last.header)
		}
		if _, err := w.in.Trigger(t.Context(), TriggerRequest{OrgID: "default", Source: "demo"}); !errors.Is(err, ErrShed) {
			t.Errorf("trigger: %v", err)
		}
		metrics := httptest.NewRecorder()
		w.in.d.Metrics.Handler().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if !strings.Contains(metrics.Body.String(), `ingest_shed_total{reason="cap_full"} 2`) {
			t.Error("the two refusals are not counted")
		}
		if n := strings.Count(said.String(), "reason=cap_full"); n != 1 {
			t.Errorf("%d lines: %s", n, &said)
		}
		w.run()
		time.Sleep(5 * time.Second)
		if got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "later"); got.code != http.StatusAccepted {
			t.Errorf("after the pipeline caught up: %+v", got)
		}
		w.halt()
	})
}

func TestXC9SlowPipelineKeepsItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		st := storetest.SQLite(t)
		slow := func(d *Deps) {
			local := d.Factories[KindLocal]
			d.Factories[KindLocal] = func(c source.Config) (source.Source, error) {
				s, err := local(c)
				return slowSource{s, 100 * time.Second}, err
			}
		}
		one := newWorld(t, st, fakeSource(f), slow)
		two := newWorld(t, st, fakeSource(f), slow, func(d *Deps) { d.InstanceID = "two"; d.Secrets = one.secrets })
		sha := f.Commit("refs/heads/main", "first", map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := one.source("demo", "/x")
		one.run()
		two.run()
		got := one.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		time.Sleep(5 * time.Minute)
		if d := one.delivery(got.DeliveryID); d.Status != statusProcessed || d.Attempts != 1 || f.Calls("Files") != 1 {
			t.Errorf("%+v after %d fetches", d, f.Calls("Files"))
		}
		one.halt()
		two.halt()
	})
}

// slowSource takes its time before it answers what the files are.
type slowSource struct {
	source.Source
	delay time.Duration
}

func (s slowSource) Resolve(ctx context.Context, ref string) (source.Commit, error) {
	select {
	case <-time.After(s.delay):
		return s.Source.Resolve(context.WithoutCancel(ctx), ref)
	case <-ctx.Done():
		return source.Commit{}, context.Cause(ctx)
	}
}

func (s slowSource) Intake() source.Intake         { return s.Source.(source.Receiver).Intake() }
func (s slowSource) Verify(r source.Request) error { return s.Source.(source.Receiver).Verify(r) }
func (s slowSource) Read(r source.Request) (source.Received, error) {
	return s.Source.(source.Receiver).Read(r)
}

func TestXC10BodyOverTheLimit(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	r, _ := newRepo(t, nil)
	w.source("demo", r.dir)
	srv := httptest.NewServer(w.in.Handler())
	defer srv.Close()
	for name, length := range map[string]int64{"with a length": 100 << 20, "chunked": -1} {
		body := &counter{size: 100 << 20}
		req, err := http.NewRequest(http.MethodPost, srv.URL+"/webhook/default/generic/demo", body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		resp, err := srv.Client().Do(req)
		if err != nil { // the server may hang up while we still send
			t.Logf("%s: %v", name, err)
		} else {
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %s", name, resp.Status)
			}
			_ = resp.Body.Close()
		}
		if read := body.read.Load(); read > 16<<20 {
			t.Errorf("%s: the server let %d bytes come", name, read)
		}
	}
	if n, _ := w.st.Read().CountOpenDeliveries(t.Context(), 10); n != 0 {
		t.Errorf("%d rows", n)
	}
	// The handler itself, without a network in between that hides the answer.
	req := httptest.NewRequest(http.MethodPost, "/webhook/default/generic/demo", &counter{size: 100 << 20})
	req.ContentLength = -1
	if got := w.do(req); got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("%+v", got)
	}
}

// counter is a large body that counts what of it was read. A client may still send it when it has its answer.
type counter struct {
	size int64
	read atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n := min(int64(len(p)), c.size-c.read.Load())
	c.read.Add(n)
	if n == 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

func TestXC11WrongSignatureStoresNothing(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st)
		r, sha := newRepo(t, nil)
		secret := w.source("demo", r.dir)
		for _, bad := range []string{"", "x", secret + "x"} {
			if got := w.push("demo", bad, pushOf("refs/heads/main", "", sha), "d"); got.code != http.StatusUnauthorized || got.Accepted {
				t.Errorf("%+v", got)
			}
		}
		if got := w.post("demo", []byte("{}"), nil); got.code != http.StatusUnauthorized {
			t.Errorf("unsigned: %+v", got)
		}
		if n, err := st.Read().CountOpenDeliveries(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

func TestXC12ForgedForwardingHeader(t *testing.T) {
	options := `{"verificationMethod":"ip_allowlist","verificationConfig":{"allowedIps":["10.1.2.3"]}}`
	for name, tc := range map[string]struct {
		peer, forwarded string
		ok              bool
	}{
		"direct":                         {"10.1.2.3:5", "", true},
		"direct, forged":                 {"198.51.100.1:5", "10.1.2.3", false},
		"through the proxy":              {"192.0.2.1:5", "10.1.2.3", true},
		"through the proxy, forged":      {"192.0.2.1:5", "10.1.2.3, 198.51.100.1", false},
		"through two proxies":            {"192.0.2.1:5", "10.1.2.3, 192.0.2.2", true},
		"the proxy itself":               {"192.0.2.1:5", "", false},
		"rubbish from the proxy":         {"192.0.2.1:5", "10.1.2.3, x", false},
		"allowed peer, header of others": {"10.1.2.3:5", "198.51.100.1", true},
	} {
		w := newWorld(t, storetest.SQLite(t), func(d *Deps) { d.Settings.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
		if _, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: "default", Name: "hooks", Options: []byte(options)}); err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodPost, "/webhook/default/generic/hooks", strings.NewReader("{}"))
		req.RemoteAddr = tc.peer
		if tc.forwarded != "" {
			req.Header.Set("X-Forwarded-For", tc.forwarded)
		}
		if got := w.do(req); (got.code == http.StatusAccepted) != tc.ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestXC13SourceDisabledOrDeletedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		for name, change := range map[string]func(*world, string) error{
			"disabled": func(w *world, s string) error { return w.in.Enable(t.Context(), "default", s, false) },
			"deleted":  func(w *world, s string) error { return w.in.Delete(t.Context(), "default", s) },
		} {
			w := newWorld(t, st)
			r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
			secret := w.source(name, r.dir)
			got := w.push(name, secret, pushOf("refs/heads/main", "", sha), "d1")
			if err := change(w, name); err != nil {
				t.Fatal(err)
			}
			if again := w.push(name, secret, pushOf("refs/heads/main", "", sha), "d2"); again.code != http.StatusNotFound {
				t.Errorf("%s: %+v", name, again)
			}
			w.run()
			if d := w.delivery(got.DeliveryID); d.Status != statusSkipped || !strings.Contains(d.Error, name) || len(w.runs()) != 0 {
				t.Errorf("%s: %+v", name, d)
			}
			w.halt()
		}
	})
}

func TestXC14NodeThatHasNotHeardOfASource(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		one := newWorld(t, st)
		two := newWorld(t, st, func(d *Deps) { d.InstanceID = "two"; d.Secrets = one.secrets })
		if got := two.push("demo", "x", pushOf("refs/heads/main", "", ""), "d0"); got.code != http.StatusNotFound {
			t.Fatalf("%+v", got)
		}
		r, sha := newRepo(t, nil)
		secret := one.source("demo", r.dir)
		if got := two.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1"); got.code != http.StatusAccepted {
			t.Errorf("%+v", got)
		}
	})
}

func TestXC15IdempotencyKeyHasAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, storetest.SQLite(t))
		_, err := w.in.AddGeneric(t.Context(), GenericSource{OrgID: "default", Name: "hooks", Options: []byte(
			`{"verificationMethod":"none","idempotencyKeyPath":"id","dedupWindowSeconds":60,"rateLimitRpm":0}`)})
		if err != nil {
			t.Fatal(err)
		}
		send := func(id string) reply { return w.post("hooks", []byte(`{"id":"`+id+`"}`), nil) }
		var wg sync.WaitGroup
		var mu sync.Mutex
		accepted := 0
		for range 16 {
			wg.Go(func() {
				got := send("a")
				mu.Lock()
				defer mu.Unlock()
				if got.code == http.StatusAccepted {
					accepted++
				} else if !got.Duplicate {
					t.Errorf("%+v", got)
				}
			})
		}
		wg.Wait()
		if accepted != 1 {
			t.Errorf("%d accepted, want 1", accepted)
		}
		if got := send("b"); got.Duplicate {
			t.Error("another key is a duplicate")
		}
		time.Sleep(59 * time.Second)
		if got := send("a"); !got.Duplicate {
			t.Error("accepted again within the window")
		}
		time.Sleep(2 * time.Second)
		if got := send("a"); got.Duplicate || got.code != http.StatusAccepted {
			t.Errorf("after the window: %+v", got)
		}
		if got := send("a"); !got.Duplicate {
			t.Error("the new one is not remembered")
		}
		// A sender's delivery id is remembered for a day.
		id := map[string]string{"X-Delivery-Id": "x"}
		w.post("hooks", []byte(`{}`), id)
		time.Sleep(23 * time.Hour)
		if got := w.post("hooks", []byte(`{}`), id); !got.Duplicate {
			t.Errorf("%+v", got)
		}
	})
}

func TestXC17DuplicateDoesNotOverwriteTheOutcome(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		first := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		before := w.delivery(first.DeliveryID)
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		after := w.delivery(first.DeliveryID)
		if got.code != http.StatusOK || !got.Duplicate || got.RunID != before.RunID.String || got.ID != first.ID {
			t.Errorf("%+v", got)
		}
		before.Duplicates = 1
		if after != before {
			t.Errorf("%+v became %+v", before, after)
		}
	})
}

func TestXC18FailedLookupIsNotAnUnknownSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		w := newWorld(t, storetest.SQLite(t), fakeSource(f))
		sha := f.Commit("refs/heads/main", "first", map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", "/x")
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		w.secrets.mu.Lock()
		w.secrets.fail = errors.New("the key is away")
		w.secrets.mu.Unlock()
		time.Sleep(time.Minute) // the catalogue forgets
		if again := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d2"); again.code != http.StatusInternalServerError {
			t.Errorf("%+v", again)
		}
		w.run()
		time.Sleep(time.Second)
		w.secrets.mu.Lock()
		w.secrets.fail = nil
		w.secrets.mu.Unlock()
		time.Sleep(time.Minute)
		d := w.delivery(got.DeliveryID)
		if d.Status != statusProcessed || d.Attempts < 2 {
			t.Errorf("%+v", d)
		}
		w.halt()
	})
}

func TestXC19UnknownChangedFilesMatchAndSaySo(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, first := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "{push: {paths: [src/**]}}"), "src/a": "1"})
		second := r.commit("docs", map[string]string{"docs/a": "1"})
		third := r.commit("code", map[string]string{"src/a": "2"})
		secret := w.source("demo", r.dir)
		missing := "1234567890123456789012345678901234567890"
		for _, tc := range []struct {
			before, after string
			matched       int64
			degraded      bool
		}{{first, second, 0, false}, {second, third, 1, false}, {missing, third, 1, true}} {
			got := w.push("demo", secret, pushOf("refs/heads/main", tc.before, tc.after), "")
			d := w.delivery(got.DeliveryID)
			extra, err := st.Read().ReadDeliveryExtra(t.Context(), d.ID)
			if err != nil || d.Matched != tc.matched || strings.Contains(extra.Decisions, `"degraded":true`) != tc.degraded {
				t.Errorf("%s → %s: %+v %s %v", tc.before, tc.after, d, extra.Decisions, err)
			}
		}
	})
}

func TestXC20CorruptLockIsOneFailedRun(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, first := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push"), ".kici/workflows/more.yaml": yaml("more", "push")})
		secret := w.source("demo", r.dir)
		w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", first), "d1").DeliveryID)
		second := r.commit("typo", map[string]string{".kici/workflows/ci.yaml": "on: push\njobs:\n  build:\n    run-on: linux\n    steps: []\n"})
		d := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", first, second), "d2").DeliveryID)
		if d.Status != statusCorrupt || !d.RunID.Valid || !strings.Contains(d.Error, ".kici/workflows/ci.yaml:4:") {
			t.Errorf("%+v", d)
		}
		run := w.runs()[0]
		if run.ID != d.RunID.String || run.Workflow != UnresolvedWorkflow || run.Status != "failed" || run.InitFailure != "lock_resolution" ||
			!strings.Contains(run.FailureReason, ".kici/workflows/ci.yaml:4:") || run.Sha != second {
			t.Errorf("%+v", run)
		}
		if len(w.runs()) != 3 {
			t.Errorf("runs %s", w.workflows())
		}
		regs, err := st.Read().RegistrationsOfOrg(t.Context(), "default")
		if err != nil || len(regs) != 2 || regs[0].CommitSha != first {
			t.Errorf("registrations were pruned: %+v %v", regs, err)
		}
	})
}

func TestXC21UnreachableIsRetriedNotMissing(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, sha := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", r.dir)
		if err := os.Rename(r.dir, r.dir+".away"); err != nil {
			t.Fatal(err)
		}
		got := w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1")
		for {
			rows, err := st.Read().ReadDelivery(t.Context(), "default", got.ID)
			if err != nil || rows[0].FinishedAt.Valid {
				t.Fatalf("%+v %v", rows, err)
			}
			if rows[0].Error != "" {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := os.Rename(r.dir+".away", r.dir); err != nil {
			t.Fatal(err)
		}
		if d := w.delivery(got.DeliveryID); d.Status != statusProcessed || d.Attempts < 2 || d.Matched != 1 || d.Error != "" {
			t.Errorf("%+v", d)
		}
	})
}

func TestXC22ForeignLockFormatSaysWhoMustAct(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t)).run()
	r, sha := newRepo(t, map[string]string{".kici/kici.lock.json": `{"schemaVersion":29,"workflows":[]}`})
	secret := w.source("demo", r.dir)
	d := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", sha), "d1").DeliveryID)
	if d.Status != statusCorrupt || !strings.Contains(d.Error, "kici compile") {
		t.Errorf("%+v", d)
	}
}

func TestXC23HostileWorkflowFiles(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t)).run()
	var bomb bytes.Buffer
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 40 {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i)
	}
	r, _ := newRepo(t, nil)
	secret := w.source("demo", r.dir)
	for name, text := range map[string]string{
		"anchors": bomb.String(),
		"deep":    strings.Repeat("[", 100_000),
		"huge":    "# " + strings.Repeat("x", 6<<20),
		"pattern": yaml("ci", "{push: {branches: ['[']}}"),
		"cells":   "on: push\njobs:\n  a:\n    runs-on: x\n    strategy:\n      matrix:\n        a: [" + strings.Repeat("1,", 100) + "1]\n        b: [" + strings.Repeat("1,", 100) + "1]\n    steps: [{run: x}]\n",
	} {
		sha := r.commit(name, map[string]string{".kici/workflows/ci.yaml": text})
		began := time.Now()
		d := w.delivery(w.push("demo", secret, pushOf("refs/heads/x", "", sha), name).DeliveryID)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", name, took)
		}
		if d.Status != statusCorrupt && name != "cells" { // a matrix may be an init failure of its job instead
			t.Errorf("%s: %s %s", name, d.Status, d.Error)
		}
	}
}

func TestXC25OlderCommitThatArrivesLateDoesNotReplaceRegistrations(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		w := newWorld(t, st).run()
		r, first := newRepo(t, map[string]string{".kici/workflows/ci.yaml": yaml("old", "push")})
		second := r.commit("second", map[string]string{".kici/workflows/ci.yaml": yaml("new", "push")})
		secret := w.source("demo", r.dir)
		registered := func() string {
			regs, err := st.Read().RegistrationsOfOrg(t.Context(), "default")
			if err != nil || len(regs) != 1 {
				t.Fatalf("%+v %v", regs, err)
			}
			return regs[0].Workflow
		}
		w.delivery(w.push("demo", secret, pushOf("refs/heads/main", first, second), "d2").DeliveryID)
		late := w.delivery(w.push("demo", secret, pushOf("refs/heads/main", "", first), "d1").DeliveryID)
		if registered() != "new" || late.Matched != 1 { // it still runs its own workflow
			t.Errorf("registered %s; late delivery %+v", registered(), late)
		}
		// A forced push back to the first commit is newer, and wins.
		w.delivery(w.push("demo", secret, pushOf("refs/heads/main", second, first), "d3").DeliveryID)
		if registered() != "old" {
			t.Errorf("after the forced push: %s", registered())
		}
	})
}
