package access

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a service on a store with a clock that the test moves.
type fixture struct {
	*Service
	st    *store.Store
	now   *atomic.Int64
	dir   string
	owner Principal
	token string // of the owner
}

func setUp(t *testing.T, d *storetest.Database) *fixture {
	t.Helper()
	f := &fixture{now: &atomic.Int64{}, dir: t.TempDir()}
	f.now.Store(time.Now().UnixMilli())
	clock := func() time.Time { return time.UnixMilli(f.now.Load()) }
	d.Config.Now = clock
	f.st = d.Open(t)
	f.Service = New(f.st, service.Env{Now: clock, NewID: ci.NewID}, slog.New(slog.DiscardHandler))
	if created, err := f.Bootstrap(t.Context(), f.dir); err != nil || !created {
		t.Fatal(created, err)
	}
	var err error
	if f.token, err = ReadTokenFile(filepath.Join(f.dir, TokenFile)); err != nil {
		t.Fatal(err)
	}
	if f.owner, err = f.Authenticate(t.Context(), f.token); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) pass(d time.Duration) { f.now.Add(d.Milliseconds()) }

func each(t *testing.T, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) { fn(t, setUp(t, d)) })
}

func TestXC145PermissionTable(t *testing.T) {
	table := map[Role][]Permission{
		Auditor: {
			"context.read", "audit.read", "run.read", "event_log.read", "access_log.read", "event_dlq.read", "scaler.read",
		},
		Admin: {
			"context.create", "context.update", "context.delete", "secret.read", "secret.write", "secret.delete", "secret.reveal",
			"run.cancel", "run.trigger", "event_log.read_payload", "scheduled_job.trigger", "attestation.retry", "event_dlq.manage",
			"orchestrator.drain", "ci_trust.read", "ci_trust.admin", "peer.manage", "scaler.manage", "source.manage", "backend.manage",
			"maintenance", "config.manage",
		},
		Owner: {"token.manage", "key.rotate", "db.migrate"},
	}
	var have []Permission
	for _, role := range []Role{Auditor, Admin, Owner} {
		have = append(have, table[role]...)
		slices.Sort(have)
		if got := role.Permissions(); !slices.Equal(got, have) {
			t.Errorf("%s has %v, want %v", role, got, have)
		}
	}
	for _, role := range []Role{"", "root", "Owner"} {
		if p := role.Permissions(); len(p) != 0 || role.Valid() {
			t.Errorf("role %q has %v", role, p)
		}
	}
	if Owner.Can("made.up") || (Principal{Role: Owner}).Can("") {
		t.Error("a permission outside the table is given")
	}
	err := Principal{Role: Auditor}.Require(RunCancel)
	if !errors.Is(err, ErrForbidden) || err.Error() != "role auditor lacks permission run.cancel" {
		t.Error(err)
	}
}

func TestXC146Scope(t *testing.T) {
	all, one := Principal{}, Principal{RoutingKey: "k"}
	if all.Scoped() || !all.Sees("k") || !one.Scoped() || !one.Sees("k") || one.Sees("other") || one.Sees("") {
		t.Error("scope")
	}
}

func TestBootstrap(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if f.owner.Role != Owner || f.owner.OrgID != DefaultOrg || f.owner.Scoped() || f.owner.Kind != KindAPIKey {
			t.Errorf("%+v", f.owner)
		}
		info, err := os.Stat(filepath.Join(f.dir, TokenFile))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info, err)
		}
		if created, err := f.Bootstrap(t.Context(), f.dir); created || err != nil {
			t.Error("second start:", created, err)
		}
		if again, _ := ReadTokenFile(filepath.Join(f.dir, TokenFile)); again != f.token {
			t.Error("the file changed")
		}
	})
}

// A crash between file and row leaves a file whose token the next start registers.
func TestBootstrapAfterCrash(t *testing.T) {
	s := bare(t)
	dir := t.TempDir()
	token, _ := newToken()
	if err := writeTokenFile(filepath.Join(dir, TokenFile), token); err != nil {
		t.Fatal(err)
	}
	if created, err := s.Bootstrap(t.Context(), dir); !created || err != nil {
		t.Fatal(created, err)
	}
	if _, err := s.Authenticate(t.Context(), token); err != nil {
		t.Error(err)
	}
	if rows, _ := s.ListTokens(t.Context(), DefaultOrg); len(rows) != 1 {
		t.Error(rows)
	}
}

func TestBootstrapWithRubbishInFile(t *testing.T) {
	s := bare(t)
	dir := t.TempDir()
	path := filepath.Join(dir, TokenFile)
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if created, err := s.Bootstrap(t.Context(), dir); !created || err != nil {
		t.Fatal(created, err)
	}
	token, _ := ReadTokenFile(path)
	if _, err := s.Authenticate(t.Context(), token); err != nil {
		t.Error(err)
	}
}

func bare(t *testing.T) *Service {
	t.Helper()
	return New(storetest.SQLite(t), service.Env{Now: time.Now, NewID: ci.NewID}, slog.New(slog.DiscardHandler))
}

func TestBootstrapGivenToken(t *testing.T) {
	s := bare(t)
	ctx, dir, given := t.Context(), t.TempDir(), strings.Repeat("g", 40)
	if _, err := s.BootstrapWith(ctx, dir, "short"); err == nil {
		t.Error("a short token is taken")
	}
	if created, err := s.BootstrapWith(ctx, dir, given); !created || err != nil {
		t.Fatal(created, err)
	}
	p, err := s.Authenticate(ctx, given)
	if err != nil {
		t.Fatal(err)
	}
	if inFile, _ := ReadTokenFile(filepath.Join(dir, TokenFile)); inFile != given {
		t.Errorf("file has %q", inFile)
	}
	// A revoked bootstrap token stays so, even if it is the only one left.
	if err := s.st.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.RevokeAdminToken(ctx, nullInt(1), p.TokenID, DefaultOrg)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if created, err := s.BootstrapWith(ctx, dir, given); !created || err != nil {
		t.Fatal(created, err)
	}
	if _, err := s.Authenticate(ctx, given); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("the revoked token is back: %v", err)
	}
	fresh, _ := ReadTokenFile(filepath.Join(dir, TokenFile))
	if _, err := s.Authenticate(ctx, fresh); err != nil || fresh == given {
		t.Error(fresh, err)
	}
}

// Nodes that start together on one database make one owner token between them.
func TestBootstrapTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		s := New(st, service.Env{Now: time.Now, NewID: ci.NewID}, slog.New(slog.DiscardHandler))
		var wg sync.WaitGroup
		var made atomic.Int64
		for range 8 {
			dir := t.TempDir()
			wg.Go(func() {
				created, err := s.Bootstrap(t.Context(), dir)
				if err != nil {
					t.Error(err)
				}
				token, err := ReadTokenFile(filepath.Join(dir, TokenFile))
				if created {
					made.Add(1)
					if _, err := s.Authenticate(t.Context(), token); err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("a file with a token of nobody: %v", err)
				}
			})
		}
		wg.Wait()
		if made.Load() != 1 {
			t.Errorf("%d tokens", made.Load())
		}
	})
}

func TestAuthenticate(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		for _, bad := range []string{"", "x", f.token[:63], f.token + "0", strings.ToUpper(f.token) + "x", HashToken(f.token)} {
			if _, err := f.Authenticate(ctx, bad); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		token, row, err := f.CreateToken(ctx, f.owner, NewToken{Label: "ci", Role: Auditor, RoutingKey: "rk", ExpiresAt: f.now.Load() + 1000})
		if err != nil {
			t.Fatal(err)
		}
		if row.TokenHash == token || strings.Contains(fmt.Sprint(row), token) {
			t.Error("the token itself is stored")
		}
		p, err := f.Authenticate(ctx, token)
		if want := (Principal{TokenID: row.ID, OrgID: DefaultOrg, Label: "ci", Role: Auditor, RoutingKey: "rk", Kind: KindAPIKey}); err != nil || p != want {
			t.Errorf("%+v, %v", p, err)
		}
		f.pass(time.Second)
		if _, err := f.Authenticate(ctx, token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("expired: %v", err)
		}
	})
}

func TestXC147StoreDown(t *testing.T) {
	d := storetest.SQLiteDatabase(t)
	f := setUp(t, d)
	session, err := f.NewSession(t.Context(), f.token)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.st.Close(); err != nil {
		t.Fatal(err)
	}
	for range 30 { // never turns into a refusal for rate
		ctx := WithAddress(t.Context(), "192.0.2.1:1000")
		if _, err := f.Authenticate(ctx, f.token); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnauthenticated) {
			t.Error(err)
		}
		if _, err := f.Session(ctx, session); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if _, _, err := f.RedeemLogin(ctx, "x"); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
	}
}

func TestCreateTokenLimits(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	admin := f.owner
	admin.Role = Admin
	scoped := f.owner
	scoped.RoutingKey = "rk"
	for name, c := range map[string]struct {
		by   Principal
		n    NewToken
		want error
	}{
		"no label":      {f.owner, NewToken{Role: Admin}, ErrInvalid},
		"blank label":   {f.owner, NewToken{Label: "  ", Role: Admin}, ErrInvalid},
		"long label":    {f.owner, NewToken{Label: strings.Repeat("x", 256), Role: Admin}, ErrInvalid},
		"no role":       {f.owner, NewToken{Label: "x"}, ErrInvalid},
		"odd role":      {f.owner, NewToken{Label: "x", Role: "king"}, ErrInvalid},
		"past":          {f.owner, NewToken{Label: "x", Role: Admin, ExpiresAt: f.now.Load()}, ErrInvalid},
		"above oneself": {admin, NewToken{Label: "x", Role: Owner}, ErrForbidden},
		"no permission": {admin, NewToken{Label: "x", Role: Auditor}, ErrForbidden},
		"wider scope":   {scoped, NewToken{Label: "x", Role: Auditor}, ErrForbidden},
		"other scope":   {scoped, NewToken{Label: "x", Role: Auditor, RoutingKey: "other"}, ErrForbidden},
		"own scope":     {scoped, NewToken{Label: "x", Role: Auditor, RoutingKey: "rk"}, nil},
		"long, runes":   {f.owner, NewToken{Label: strings.Repeat("ü", 255), Role: Owner}, nil},
	} {
		if _, _, err := f.CreateToken(t.Context(), c.by, c.n); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestXC148LastOwner(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		if err := f.RevokeToken(ctx, f.owner, f.owner.TokenID); !errors.Is(err, ErrLastOwner) {
			t.Error(err)
		}
		if _, err := f.Authenticate(ctx, f.token); err != nil {
			t.Error("revoked all the same:", err)
		}
		if err := f.RevokeToken(ctx, f.owner, "unknown"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		// A scoped or expiring owner is no way back in.
		for _, n := range []NewToken{{Label: "scoped", Role: Owner, RoutingKey: "rk"}, {Label: "short", Role: Owner, ExpiresAt: f.now.Load() + 1}} {
			if _, _, err := f.CreateToken(ctx, f.owner, n); err != nil {
				t.Fatal(err)
			}
		}
		f.pass(time.Hour)
		if f.st.Dialect() == store.PostgreSQL { // where the store's clock is its own
			if err := f.st.Write(ctx, func(tx *store.Tx) error {
				rows, err := tx.AdminTokens(ctx, DefaultOrg)
				for _, r := range rows {
					if r.Label == "short" {
						_, err = tx.RevokeAdminToken(ctx, nullInt(1), r.ID, DefaultOrg)
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.RevokeToken(ctx, f.owner, f.owner.TokenID); !errors.Is(err, ErrLastOwner) {
			t.Error(err)
		}
		token, _, err := f.CreateToken(ctx, f.owner, NewToken{Label: "second", Role: Owner})
		if err != nil {
			t.Fatal(err)
		}
		second, err := f.Authenticate(ctx, token)
		if err != nil {
			t.Fatal(err)
		}
		// Both revoke each other at once: one stays.
		errs := make(chan error, 2)
		go func() { errs <- f.RevokeToken(ctx, f.owner, second.TokenID) }()
		go func() { errs <- f.RevokeToken(ctx, second, f.owner.TokenID) }()
		a, b := <-errs, <-errs
		if (a == nil) == (b == nil) || (!errors.Is(a, ErrLastOwner) && !errors.Is(b, ErrLastOwner)) {
			t.Errorf("%v, %v", a, b)
		}
	})
}

func TestSessions(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		session, err := f.NewSession(ctx, f.token)
		if err != nil || len(session) != 64 {
			t.Fatal(session, err)
		}
		p, err := f.Session(ctx, session)
		if err != nil || p.Kind != KindUser || p.TokenID != f.owner.TokenID {
			t.Error(p, err)
		}
		if _, err := f.st.Read().WebSession(ctx, session); !errors.Is(err, sql.ErrNoRows) {
			t.Error("the cookie is stored in clear")
		}
		for range 5 { // slides
			f.pass(SessionLife - time.Minute)
			if _, err := f.Session(ctx, session); err != nil {
				t.Fatal(err)
			}
		}
		f.pass(SessionLife)
		if _, err := f.Session(ctx, session); !errors.Is(err, ErrUnauthenticated) {
			t.Error(err)
		}
		session, err = f.NewSession(ctx, f.token)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.EndSession(ctx, session), f.EndSession(ctx, session)); err != nil {
			t.Error(err)
		}
		for _, gone := range []string{session, "", "x", f.token} {
			if _, err := f.Session(ctx, gone); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", gone, err)
			}
		}
	})
}

func TestSessionEndsWithItsToken(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	ctx := t.Context()
	token, row, err := f.CreateToken(ctx, f.owner, NewToken{Label: "x", Role: Admin})
	if err != nil {
		t.Fatal(err)
	}
	session, err := f.NewSession(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.RevokeToken(ctx, f.owner, row.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Session(ctx, session); !errors.Is(err, ErrUnauthenticated) {
		t.Error(err)
	}
	if _, err := f.CreateLoginLink(ctx, row.ID); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestLoginLink(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		secret, err := f.CreateLoginLink(ctx, f.owner.TokenID)
		if err != nil {
			t.Fatal(err)
		}
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				session, _, err := f.RedeemLogin(ctx, secret)
				if err == nil {
					won.Add(1)
					if p, err := f.Session(ctx, session); err != nil || p.TokenID != f.owner.TokenID {
						t.Error(p, err)
					}
				} else if !errors.Is(err, ErrUnauthenticated) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("the link was good %d times", won.Load())
		}
		if _, err := f.CreateLoginLink(ctx, "unknown"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestLoginLinkExpires(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	secret, err := f.CreateLoginLink(t.Context(), f.owner.TokenID)
	if err != nil {
		t.Fatal(err)
	}
	f.pass(LinkLife)
	if _, _, err := f.RedeemLogin(t.Context(), secret); !errors.Is(err, ErrUnauthenticated) {
		t.Error(err)
	}
}

func TestFailedLoginsAreLimited(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	from := func(a string) context.Context { return WithAddress(t.Context(), a) }
	for i := range failuresAllowed {
		if _, err := f.Authenticate(from(fmt.Sprintf("192.0.2.1:%d", i)), "wrong"); !errors.Is(err, ErrUnauthenticated) {
			t.Fatal(i, err)
		}
	}
	if _, err := f.Authenticate(from("192.0.2.1:99"), "wrong"); !errors.Is(err, ErrRateLimited) {
		t.Error(err)
	}
	if _, err := f.NewSession(from("192.0.2.1"), f.token); !errors.Is(err, ErrRateLimited) {
		t.Error("the login form still listens:", err)
	}
	if _, _, err := f.RedeemLogin(from("192.0.2.1"), "x"); !errors.Is(err, ErrRateLimited) {
		t.Error(err)
	}
	if _, err := f.Authenticate(from("192.0.2.1"), f.token); err != nil {
		t.Error("a good token behind the same address is locked out:", err)
	}
	if _, err := f.Authenticate(from("192.0.2.2"), "wrong"); !errors.Is(err, ErrUnauthenticated) {
		t.Error("another address is limited:", err)
	}
	f.pass(failureWindow)
	if _, err := f.NewSession(from("192.0.2.1"), f.token); err != nil {
		t.Error(err)
	}
}

func TestNetwork(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8::1]:80": "2001:db8::/64", "2001:db8::2": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64", "@": "@", "": "",
	} {
		if got := network(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := limiter{seen: map[string]window{}}
	now := time.Now()
	for i := range 3 * addressesKept {
		l.failed(fmt.Sprint(i), now)
	}
	if len(l.seen) > addressesKept {
		t.Errorf("%d addresses are kept", len(l.seen))
	}
	l.sweep(now.Add(failureWindow))
	if len(l.seen) != 0 {
		t.Error("old windows stay")
	}
}

func TestAgentTokens(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		token, row, err := f.CreateAgentToken(ctx, f.owner, []string{"Linux", "gpu", "linux"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !agentToken.MatchString(token) || row.Prefix != token[:12] || row.Labels != `["gpu","linux"]` || row.MandatoryLabels != "[]" {
			t.Errorf("%s %+v", token, row)
		}
		if got, err := f.AgentByToken(ctx, token); err != nil || got.ID != row.ID {
			t.Error(got, err)
		}
		for _, bad := range []string{"", "kat_", token[:len(token)-1], strings.ToUpper(token), f.token, "kat_" + strings.Repeat("0", 64)} {
			if _, err := f.AgentByToken(ctx, bad); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		auditor := f.owner
		auditor.Role = Auditor
		if _, _, err := f.CreateAgentToken(ctx, auditor, nil, nil); !errors.Is(err, ErrForbidden) {
			t.Error(err)
		}
		if _, _, err := f.CreateAgentToken(ctx, f.owner, []string{strings.Repeat("x", 300)}, nil); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		told := f.st.Subscribe(store.TopicAgentTokens, row.ID)
		defer told.Close()
		if _, err := f.RevokeAgentToken(ctx, f.owner, row.ID); err != nil {
			t.Error(err)
		}
		<-told.C()
		if _, err := f.RevokeAgentToken(ctx, f.owner, row.ID); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if _, err := f.AgentByToken(ctx, token); !errors.Is(err, ErrUnauthenticated) {
			t.Error(err)
		}
		static, err := f.ListAgentTokens(ctx, DefaultOrg, StaticToken)
		none, err2 := f.ListAgentTokens(ctx, DefaultOrg, EphemeralToken)
		if len(static) != 1 || len(none) != 0 || err != nil || err2 != nil {
			t.Error(static, none, err, err2)
		}
	})
}

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

// run lets the service's loop write everything.
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
		if e.sampled() != e.sampled() {
			t.Fatal("not stable")
		}
		if e.sampled() {
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

func TestSweep(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	ctx := t.Context()
	session, err := f.NewSession(ctx, f.token)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Session(ctx, session); err != nil {
		t.Error("a living session was swept:", err)
	}
	f.pass(SessionLife + time.Hour)
	if err := f.sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := f.st.Read().WebSession(ctx, HashToken(session)); !errors.Is(err, sql.ErrNoRows) {
		t.Error("an expired session stays")
	}
}
