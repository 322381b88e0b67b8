package access

import (
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/storetest"
)

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

func TestSweep(t *testing.T) {
	f := setUp(t, storetest.SQLiteDatabase(t))
	ctx := t.Context()
	session, err := f.NewSession(ctx, f.token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.CleanTokens(ctx, f.lead(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Session(ctx, session); err != nil {
		t.Error("a living session was swept:", err)
	}
	f.pass(SessionLife + time.Hour)
	if _, err := f.CleanTokens(ctx, f.lead(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.st.Read().WebSession(ctx, HashToken(session)); !errors.Is(err, sql.ErrNoRows) {
		t.Error("an expired session stays")
	}
}
