package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

// forgeWorld is a world with one source on a forge in memory, and a clock that can be moved forward.
type forgeWorld struct {
	*world
	forge  *sourcetest.Forge
	secret string
	ahead  atomic.Int64
	term   int64
}

const forgeName = "shop"

func newForgeWorld(t *testing.T, st *store.Store, change ...func(*Deps)) *forgeWorld {
	t.Helper()
	fw := &forgeWorld{forge: &sourcetest.Forge{}}
	factory := func(c source.Config) (source.Source, error) {
		fw.forge.Configure(c, "main")
		return fw.forge, nil
	}
	fw.world = newWorld(t, st, append([]func(*Deps){func(d *Deps) {
		d.Factories[source.KindGitea], d.Factories[source.KindGitHub] = factory, factory
		d.Env.Now = func() time.Time { return time.Now().Add(time.Duration(fw.ahead.Load())) }
		d.Settings.GapEvery, d.Settings.GapConfirm = time.Second, 100*time.Millisecond
	}}, change...)...)
	added, err := fw.in.AddForge(t.Context(), ForgeSource{
		OrgID: "default", Name: forgeName, Kind: source.KindGitea, Options: json.RawMessage(`{"url":"https://git.example.com","repository":"acme/shop"}`), Token: "tok",
	})
	if err != nil {
		t.Fatal(err)
	}
	fw.secret = added.Secret
	err = st.Write(t.Context(), func(tx *store.Tx) error {
		if err := tx.SeedLeaderTerm(t.Context()); err != nil {
			return err
		}
		fw.term, err = tx.TakeLeaderTerm(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fw
}

// look lets the next look become due, and looks.
func (fw *forgeWorld) look() {
	fw.t.Helper()
	fw.ahead.Add(int64(2 * time.Second))
	if n, err := fw.in.lookAtDue(context.Background(), fw.term); err != nil || n > 1 {
		fw.t.Fatal(n, err)
	}
}

// pushed delivers a push as the forge does, and waits for its outcome.
func (fw *forgeWorld) pushed(ref, before, after, id string) string {
	fw.t.Helper()
	got := fw.push(forgeName, fw.secret, pushOf(ref, before, after), id)
	if got.code != http.StatusAccepted {
		fw.t.Fatalf("%+v", got)
	}
	d := fw.delivery(got.ID)
	return d.Status + " " + d.Error
}

// settled waits until no delivery is open.
func (fw *forgeWorld) settled() {
	fw.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		n, err := fw.st.Read().CountOpenDeliveries(context.Background(), 1)
		if err != nil {
			fw.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
	fw.t.Fatal("deliveries do not end")
}

func ciOn(trigger string) map[string]string {
	return map[string]string{".kici/workflows/ci.yaml": yaml("ci", trigger)}
}

func TestAddForge(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		row, err := fw.in.Get(t.Context(), "default", forgeName)
		if err != nil || row.Repo != "acme/shop" || row.RoutingKey != "generic:default:"+row.ID {
			t.Errorf("%+v %v", row, err)
		}
		again := ForgeSource{OrgID: "default", Name: "other", Kind: source.KindGitea, Options: json.RawMessage(`{"url":"https://GIT.example.com/","repository":"Acme/Shop"}`)}
		if _, err := fw.in.AddForge(t.Context(), again); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "source shop already") {
			t.Errorf("the same repository again: %v", err)
		}
		hub := ForgeSource{OrgID: "default", Name: "hub", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"acme/shop"}`)}
		added, err := fw.in.AddForge(t.Context(), hub)
		if err != nil || added.Source.RoutingKey != "github:"+added.Source.ID || added.URL != "http://kici.test/webhook/default/github/hub" || len(added.Secret) < minSecret {
			t.Errorf("%+v %v", added, err)
		}
		for name, f := range map[string]ForgeSource{
			"no repository":  {Name: "a", Kind: source.KindGitHub, Options: json.RawMessage(`{}`)},
			"wrong kind":     {Name: "a", Kind: "svn", Options: json.RawMessage(`{"repository":"a/b"}`)},
			"two tokens":     {Name: "a", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"a/b"}`), Token: "a b"},
			"not a key":      {Name: "a", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"a/b"}`), SSHKey: "ssh-ed25519 AAAA"},
			"short secret":   {Name: "a", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"a/b"}`), Secret: "short"},
			"hostile repo":   {Name: "a", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"--upload-pack=x"}`)},
			"broken options": {Name: "a", Kind: source.KindGitHub, Options: json.RawMessage(`{`)},
		} {
			f.OrgID = "default"
			if _, err := fw.in.AddForge(t.Context(), f); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestAddForgeSaysWhatWillNotWork(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t), func(d *Deps) { d.BaseURL = func() string { return "http://127.0.0.1:4000" } })
	hub := ForgeSource{OrgID: "default", Name: "hub", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"acme/shop"}`)}
	added, err := fw.in.AddForge(t.Context(), hub)
	if text := strings.Join(added.Warnings, "\n"); err != nil || !strings.Contains(text, "--public-url") || !strings.Contains(text, "set-token hub") {
		t.Errorf("%q %v", text, err)
	}
	here := ForgeSource{OrgID: "default", Name: "here", Kind: source.KindGitea, Options: json.RawMessage(`{"url":"http://localhost:3000","repository":"a/b"}`), Token: "t"}
	if added, err = fw.in.AddForge(t.Context(), here); err != nil || len(added.Warnings) != 0 {
		t.Errorf("a forge on this machine: %q %v", added.Warnings, err)
	}
}

// The address of GitHub's sources takes name and id, of this organisation only, and nobody else's sources (ING-7).
func TestGitHubAddress(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	added, err := fw.in.AddForge(t.Context(), ForgeSource{OrgID: "default", Name: "hub", Kind: source.KindGitHub, Options: json.RawMessage(`{"repository":"a/b"}`)})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"ref":"refs/heads/main"}`)
	for _, x := range []struct {
		path string
		want int
	}{
		{"/webhook/default/github/hub", 202},
		{"/webhook/default/github/" + added.Source.ID, 202},
		{"/webhook/other/github/hub", 404},
		{"/webhook/other/github/" + added.Source.ID, 404},
		{"/webhook/default/github/nobody", 404},
		{"/webhook/default/github/generic:default:nothing", 404},
		{"/webhook/default/github/" + forgeName, 404}, // last: the fake has the secrets of the source that was opened last
	} {
		req := httptest.NewRequest(http.MethodPost, x.path, bytes.NewReader(body))
		req.Header.Set(source.SignatureHeader, source.Sign(added.Secret, body))
		req.Header.Set("X-Event-Type", "push")
		if got := fw.do(req); got.code != x.want {
			t.Errorf("%s: %+v, want %d", x.path, got, x.want)
		}
	}
}

// A forge's delivery may have 25 MiB, a generic one 10.
func TestXC10ForgeBodies(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	generic := fw.generic("hooks", `{"maxPayloadBytes":10485760}`)
	for _, x := range []struct {
		name, secret string
		size, want   int
	}{
		{forgeName, fw.secret, 10 << 20, 202},
		{forgeName, fw.secret, 26 << 20, 413},
		{"hooks", generic, 10 << 20, 202},
		{"hooks", generic, 10<<20 + 1, 413},
	} {
		body := fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", x.size-8))
		got := fw.signed(x.name, x.secret, "push", fmt.Sprint(x.name, x.size), body)
		if len(body) != x.size || got.code != x.want {
			t.Errorf("%s, %d bytes: %d %s, want %d", x.name, len(body), got.code, got.Error, x.want)
		}
	}
}

// A fork's pull request runs the base branch's workflows on the fork's commit, without trust, and says so (LOCK-9, PIPE-4).
func TestXC24ForkRunsTheBaseWorkflows(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		fw.run()
		base := fw.forge.Commit("refs/heads/main", "base", ciOn("pull_request"))
		head := fw.forge.Commit("", "evil", map[string]string{".kici/workflows/ci.yaml": yaml("stolen", "pull_request"), ".kici/workflows/more.yaml": yaml("more", "pull_request")})
		request := func(number int64, fork bool) string {
			body, err := json.Marshal(sourcetest.ForgePullRequest{Number: number, Head: head, Base: base, Branch: "feature", Into: "main", Fork: fork})
			if err != nil {
				t.Fatal(err)
			}
			got := fw.signed(forgeName, fw.secret, "pull_request", fmt.Sprint(number, fork), body)
			return fw.delivery(got.ID).Status
		}
		if status := request(7, true); status != statusProcessed {
			t.Fatal(status)
		}
		runs := fw.runs()
		if len(runs) != 1 || runs[0].Workflow != "ci" || runs[0].Sha != head || runs[0].Title != "evil" {
			t.Fatalf("%+v", runs)
		}
		row, err := st.Read().ReadRunExtra(t.Context(), runs[0].ID)
		if err != nil || row.TrustTier != "unknown" {
			t.Errorf("%+v %v", row, err)
		}
		for _, part := range []string{"without secrets", "changes .kici/workflows/ci.yaml and 1 more"} {
			if !strings.Contains(runs[0].Warnings, part) {
				t.Errorf("%q is not in %s", part, runs[0].Warnings)
			}
		}
		request(8, false)
		if got := fw.workflows(); strings.Count(got, "stolen") != 1 || strings.Count(got, "more") != 1 {
			t.Errorf("a request of the repository itself runs its own workflows: %s", got)
		}
	})
}

// A fork whose base is not known runs nothing at all.
func TestForkWithoutABaseRunsNothing(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	fw.run()
	head := fw.forge.Commit("refs/heads/main", "x", ciOn("pull_request"))
	body, _ := json.Marshal(sourcetest.ForgePullRequest{Number: 1, Head: head, Branch: "f", Into: "main", Fork: true})
	d := fw.delivery(fw.signed(forgeName, fw.secret, "pull_request", "1", body).ID)
	if d.Status != statusFailed || !strings.Contains(d.Error, "base of the fork") || len(fw.runs()) != 0 {
		t.Errorf("%+v", d)
	}
}

// A forge that says when to come again is waited for; that is no failed attempt, and the delivery says so.
func TestXC21RateLimitIsWaitedFor(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		sha := fw.forge.Commit("refs/heads/main", "x", ciOn("push"))
		at := time.Now().Add(40 * time.Minute)
		fw.forge.Fail(&source.RetryAt{At: at, Cause: fmt.Errorf("rate limit of the token is used up: %w", source.ErrUnreachable)})
		fw.run()
		got := fw.push(forgeName, fw.secret, pushOf("refs/heads/main", "", sha), "d1")
		var next int64
		for deadline := time.Now().Add(30 * time.Second); next < at.Add(-time.Minute).UnixMilli(); time.Sleep(2 * time.Millisecond) {
			rows, err := st.Read().ReadDelivery(t.Context(), "default", got.ID)
			if err != nil || time.Now().After(deadline) {
				t.Fatal(err, rows)
			}
			if next = rows[0].NextAttemptAt; next > time.Now().Add(time.Minute).UnixMilli() && (rows[0].Attempts != 0 || !strings.Contains(rows[0].Error, "rate limit")) {
				t.Errorf("%+v", rows[0])
			}
		}
	})
}

// A repository that is too large to be kept is so at every attempt: there is one.
func TestTooLargeARepositoryIsNotFetchedAgain(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	sha := fw.forge.Commit("refs/heads/main", "x", ciOn("push"))
	fw.forge.Fail(fmt.Errorf("the history takes more than 10 GiB: %w", source.ErrTooLarge))
	fw.run()
	d := fw.delivery(fw.push(forgeName, fw.secret, pushOf("refs/heads/main", "", sha), "d1").ID)
	if d.Status != statusFailed || d.Attempts != 1 || !strings.Contains(d.Error, "more than 10 GiB") {
		t.Errorf("%+v", d)
	}
}

// A refused credential fails after the ordinary attempts, with the command that mends it.
func TestRefusedCredentialNamesTheCure(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t), func(d *Deps) { d.Settings.MaxAttempts = 1 })
	sha := fw.forge.Commit("refs/heads/main", "x", ciOn("push"))
	fw.forge.Fail(fmt.Errorf("the token has expired: %w", source.ErrDenied))
	fw.run()
	d := fw.delivery(fw.push(forgeName, fw.secret, pushOf("refs/heads/main", "", sha), "d1").ID)
	if d.Status != statusFailed || !strings.Contains(d.Error, "the token has expired") || !strings.Contains(d.Error, "kici source set-token shop") {
		t.Errorf("%+v", d)
	}
	if _, err := fw.in.Check(t.Context(), "default", forgeName); err == nil || !strings.Contains(err.Error(), "set-token shop") {
		t.Errorf("check: %v", err)
	}
}

// A delivery of a forge is known as long as its row is; one that failed is processed again when it comes again (ING-23).
func TestForgeDeliveriesAreKnownForEver(t *testing.T) {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	d := storetest.SQLiteDatabase(t)
	d.Config.Now = clock
	fw := newForgeWorld(t, d.Open(t), func(d *Deps) { d.Settings.MaxAttempts, d.Env.Now = 1, clock })
	sha := fw.forge.Commit("refs/heads/main", "x", ciOn("push"))
	fw.run()
	fw.forge.Fail(source.ErrUnreachable)
	first := fw.push(forgeName, fw.secret, pushOf("refs/heads/main", "", sha), "d1")
	if d := fw.delivery(first.ID); d.Status != statusFailed {
		t.Fatalf("%+v", d)
	}
	fw.forge.Fail(nil)
	again := fw.push(forgeName, fw.secret, pushOf("refs/heads/main", "", sha), "d1")
	if again.code != http.StatusAccepted || again.Duplicate || again.ID != first.ID {
		t.Errorf("what failed comes again: %+v", again)
	}
	fw.settled()
	if d := fw.delivery(first.ID); d.Status != statusProcessed || len(fw.runs()) != 1 {
		t.Errorf("%+v", d)
	}
	ahead.Store(int64(30 * 24 * time.Hour))
	late := fw.push(forgeName, fw.secret, pushOf("refs/heads/main", "", sha), "d1")
	if late.code != http.StatusOK || !late.Duplicate || late.ID != first.ID || len(fw.runs()) != 1 {
		t.Errorf("after a month: %+v", late)
	}
}

// Nobody outside can say that a delivery is kici's own.
func TestTriggerHeaderIsTakenFromSenders(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	body, _ := json.Marshal(pushOf("refs/heads/main", "", strings.Repeat("1", 40)))
	got := fw.post(forgeName, body, map[string]string{
		"X-Event-Type": "push", source.SignatureHeader: source.Sign(fw.secret, body), "X-Kici-Trigger": "gap", "X-Delivery-Id": "d1",
	})
	extra, err := fw.st.Read().ReadDeliveryExtra(t.Context(), got.ID)
	if err != nil || strings.Contains(extra.Headers, "kici-trigger") {
		t.Errorf("%s %v", extra.Headers, err)
	}
}

func TestRotateSecret(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		local := fw.source("local", t.TempDir())
		body := []byte(`{}`)
		accepts := func(name, secret string) bool {
			return fw.signed(name, secret, "other", "", body).code == http.StatusAccepted
		}
		for name, old := range map[string]string{forgeName: fw.secret, "local": local} {
			fresh, err := fw.in.RotateSecret(t.Context(), "default", name)
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return accepts(name, fresh) })
			if !accepts(name, old) {
				t.Errorf("%s: the old secret is not accepted", name)
			}
			if got, err := fw.in.RevealSecret(t.Context(), "default", name); err != nil || got != fresh {
				t.Errorf("%s reveals %q %v", name, got, err)
			}
			if err := fw.in.DropOldSecret(t.Context(), "default", name); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return !accepts(name, old) })
			if !accepts(name, fresh) {
				t.Errorf("%s: the new secret went with the old one", name)
			}
		}
		second, err := fw.in.RotateSecret(t.Context(), "default", forgeName)
		if err != nil {
			t.Fatal(err)
		}
		third, err := fw.in.RotateSecret(t.Context(), "default", forgeName)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return accepts(forgeName, third) })
		fw.ahead.Add(int64(OldSecretFor + time.Hour))
		if accepts(forgeName, second) || !accepts(forgeName, third) {
			t.Error("the old secret is accepted after its week")
		}
	})
}

// waitFor waits for what other goroutines bring about: a notification that empties the copy of the sources.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

func TestCredentials(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		fw.source("local", t.TempDir())
		if err := fw.in.SetToken(t.Context(), "default", forgeName, "fresh"); err != nil {
			t.Fatal(err)
		}
		if err := fw.in.SetSSHKey(t.Context(), "default", forgeName, "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END-----"); err != nil {
			t.Fatal(err)
		}
		row, err := fw.in.Get(t.Context(), "default", forgeName)
		if err != nil {
			t.Fatal(err)
		}
		all, err := fw.in.secrets(t.Context(), row)
		if err != nil || all[source.SecretToken] != "fresh" || !strings.HasSuffix(all[source.SecretSSHKey], "-----\n") || all[source.SecretWebhook] != fw.secret {
			t.Errorf("%v %v", all, err)
		}
		for name, err := range map[string]error{
			"empty":         fw.in.SetToken(t.Context(), "default", forgeName, ""),
			"two words":     fw.in.SetToken(t.Context(), "default", forgeName, "a b"),
			"a public key":  fw.in.SetSSHKey(t.Context(), "default", forgeName, "ssh-ed25519 AAAA"),
			"a local token": fw.in.SetToken(t.Context(), "default", "local", "tok"),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := fw.in.SetToken(t.Context(), "default", "nobody", "x"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

// A secret that was just made is the one that the forge is told.
func TestInstallHook(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	if _, err := fw.in.Check(t.Context(), "default", forgeName); err != nil { // it is in memory now
		t.Fatal(err)
	}
	fresh, err := fw.in.RotateSecret(t.Context(), "default", forgeName)
	if err != nil {
		t.Fatal(err)
	}
	address, err := fw.in.InstallHook(t.Context(), "default", forgeName)
	if want := "http://kici.test/webhook/default/generic/shop"; err != nil || address != want || strings.Join(fw.forge.Hooks(), ";") != want+" "+fresh {
		t.Errorf("%s %v %v", address, fw.forge.Hooks(), err)
	}
	fw.forge.FailLog(source.ErrDenied)
	if _, err := fw.in.InstallHook(t.Context(), "default", forgeName); !errors.Is(err, source.ErrDenied) || !strings.Contains(err.Error(), "set-token") {
		t.Error(err)
	}
	fw.source("local", t.TempDir())
	if _, err := fw.in.InstallHook(t.Context(), "default", "local"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// Another repository begins anew.
func TestUpdateOfTheRepository(t *testing.T) {
	each(t, func(t *testing.T, st *store.Store) {
		fw := newForgeWorld(t, st)
		fw.run()
		sha := fw.forge.Commit("refs/heads/main", "x", ciOn("push"))
		fw.look()
		if got := fw.pushed("refs/heads/main", "", sha, "d1"); !strings.HasPrefix(got, statusProcessed) {
			t.Fatal(got)
		}
		row, err := fw.in.Get(t.Context(), "default", forgeName)
		if err != nil {
			t.Fatal(err)
		}
		heads := func() int {
			rows, err := st.Read().SourceHeads(t.Context(), row.ID)
			if err != nil {
				t.Fatal(err)
			}
			return len(rows)
		}
		if heads() != 1 {
			t.Errorf("%d heads", heads())
		}
		if err := fw.in.Update(t.Context(), row, "", json.RawMessage(`{"url":"https://git.example.com","repository":"acme/store"}`)); err != nil {
			t.Fatal(err)
		}
		now, err := fw.in.Get(t.Context(), "default", forgeName)
		registered, rerr := fw.deps.Registrations.Synced(t.Context(), row.RoutingKey, "acme/shop")
		if err != nil || rerr != nil || now.Repo != "acme/store" || heads() != 0 || registered != "" {
			t.Errorf("%+v, %d heads, registered %q, %v %v", now, heads(), registered, err, rerr)
		}
		if err := fw.in.Update(t.Context(), row, "", json.RawMessage(`{"repository":"x/y"}`)); !errors.Is(err, ErrTryAgain) {
			t.Errorf("a stale row: %v", err)
		}
	})
}

func TestRedeliver(t *testing.T) {
	fw := newForgeWorld(t, storetest.SQLite(t))
	fw.run()
	sha := fw.forge.Commit("refs/heads/main", "x", ciOn("push"))
	fw.pushed("refs/heads/main", "", sha, "here")
	now := time.Now()
	for id, at := range map[string]time.Time{"here": now.Add(-time.Hour), "lost": now.Add(-time.Hour), "early": now.Add(-9 * time.Hour), "late": now} {
		fw.forge.Miss(source.MissedDelivery{ID: "n-" + id, GUID: id, Event: "push", At: at})
	}
	req := RedeliverRequest{OrgID: "default", Source: forgeName, Since: now.Add(-2 * time.Hour), Until: now.Add(-time.Minute), DryRun: true}
	got, err := fw.in.Redeliver(t.Context(), req)
	if err != nil || got.Matched != 2 || got.Known != 1 || got.Redelivered != 0 || len(fw.forge.Redelivered()) != 0 {
		t.Errorf("%+v %v", got, err)
	}
	req.DryRun = false
	if got, err = fw.in.Redeliver(t.Context(), req); err != nil || got.Redelivered != 1 || strings.Join(fw.forge.Redelivered(), " ") != "n-lost" {
		t.Errorf("%+v %v", got, err)
	}
	req.Since = req.Until
	if _, err := fw.in.Redeliver(t.Context(), req); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
