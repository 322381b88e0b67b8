package access

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
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
	if created, err := f.Bootstrap(t.Context(), f.dir, ""); err != nil || !created {
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

// lead takes the lead and returns its term.
func (f *fixture) lead(t *testing.T) (term int64) {
	t.Helper()
	if err := f.st.Write(t.Context(), func(tx *store.Tx) (err error) {
		if err := tx.SeedLeaderTerm(t.Context()); err != nil {
			return err
		}
		term, err = tx.TakeLeaderTerm(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return term
}

func (f *fixture) pass(d time.Duration) { f.now.Add(d.Milliseconds()) }

func each(t *testing.T, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) { fn(t, setUp(t, d)) })
}

// A crash between file and row leaves a file whose token the next start registers.

func bare(t *testing.T) *Service {
	t.Helper()
	return New(storetest.SQLite(t), service.Env{Now: time.Now, NewID: ci.NewID}, slog.New(slog.DiscardHandler))
}

// Nodes that start together on one database make one owner token between them.

// run lets the service's loop write everything.
