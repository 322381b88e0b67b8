package access

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestAuthenticate(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		for _, bad := range []string{"", "x", f.token[:63], f.token + "0", strings.ToUpper(f.token) + "x", HashToken(f.token)} {
			if _, err := f.Authenticate(ctx, bad); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		token, row, err := f.CreateToken(ctx, f.owner, NewToken{Label: "ci", Role: Auditor, RoutingKey: "rk", ExpiresAt: f.now.Load() + 1000, Subject: "ada@example.org"})
		if err != nil {
			t.Fatal(err)
		}
		if row.Subject != "ada@example.org" {
			t.Errorf("subject %q", row.Subject)
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
		"long subject":  {f.owner, NewToken{Label: "x", Role: Admin, Subject: strings.Repeat("x", 256)}, ErrInvalid},
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
		if err := f.RevokeToken(ctx, f.owner, "unknown"); !errors.Is(err, ErrNotFound) || err.Error() != "there is no token unknown that could be revoked" {
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

func TestAgentTokens(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		token, row, err := f.CreateAgentToken(ctx, f.owner, []string{"Linux", "gpu", "linux"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(token) != 68 || !strings.HasPrefix(token, "kat_") || row.Prefix != token[:12] || row.Labels != `["gpu","linux"]` || row.MandatoryLabels != "[]" {
			t.Errorf("%s %+v", token, row)
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
		if _, err := f.RevokeAgentToken(ctx, f.owner, row.ID); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), row.ID) {
			t.Error(err)
		}
		static, err := f.ListAgentTokens(ctx, DefaultOrg, StaticToken)
		none, err2 := f.ListAgentTokens(ctx, DefaultOrg, EphemeralToken)
		if len(static) != 1 || len(none) != 0 || err != nil || err2 != nil {
			t.Error(static, none, err, err2)
		}
	})
}

// An ephemeral token stays while its agent does, however old it is, and goes with it (D13).
func TestCleanTokens(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		_, hash, prefix := NewAgentToken()
		write := func(fn func(*store.Tx) error) {
			t.Helper()
			if err := f.st.Write(ctx, fn); err != nil {
				t.Fatal(err)
			}
		}
		removed := int64(0)
		left := func() int {
			t.Helper()
			n, err := f.CleanAgentTokens(ctx, f.lead(t))
			if err != nil {
				t.Fatal(err)
			}
			removed += n
			rows, err := f.ListAgentTokens(ctx, DefaultOrg, EphemeralToken)
			if err != nil {
				t.Fatal(err)
			}
			return len(rows)
		}
		write(func(tx *store.Tx) error {
			if err := tx.DispatchLaunch(ctx, db.DispatchLaunchParams{ID: "a", OrgID: DefaultOrg, Type: "fake", Now: tx.Now()}); err != nil {
				return err
			}
			return tx.InsertAgentToken(ctx, db.InsertAgentTokenParams{
				ID: "t", OrgID: DefaultOrg, TokenHash: hash, Prefix: prefix, Type: EphemeralToken, AgentID: "a", ExpiresAt: nullInt(f.now.Load() + 1000),
			})
		})
		f.pass(time.Hour)
		if left() != 1 {
			t.Error("cleaned while its agent lives")
		}
		write(func(tx *store.Tx) error {
			_, err := tx.FleetAdmitAgent(ctx, db.FleetAdmitAgentParams{ID: "a", Was: "requested", State: "gone", Now: nullInt(tx.Now())})
			return err
		})
		if left() != 0 || removed != 1 {
			t.Errorf("the token of a gone agent stays, or is not counted: %d", removed)
		}
		_, hash, prefix = NewAgentToken()
		write(func(tx *store.Tx) error {
			return tx.InsertAgentToken(ctx, db.InsertAgentTokenParams{
				ID: "u", OrgID: DefaultOrg, TokenHash: hash, Prefix: prefix, Type: EphemeralToken, AgentID: "nobody", ExpiresAt: nullInt(f.now.Load() + 1000),
			})
		})
		if left() != 0 || removed != 2 {
			t.Errorf("the token of an agent without a row stays, or is not counted: %d", removed)
		}
		if _, err := f.CleanAgentTokens(ctx, 1); !errors.Is(err, store.ErrNotLeader) {
			t.Error("an older term cleans:", err)
		}
	})
}
