package access

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestBootstrap(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if f.owner.Role != Owner || f.owner.OrgID != DefaultOrg || f.owner.Scoped() || f.owner.Kind != KindAPIKey {
			t.Errorf("%+v", f.owner)
		}
		info, err := os.Stat(filepath.Join(f.dir, TokenFile))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info, err)
		}
		if created, err := f.Bootstrap(t.Context(), f.dir, ""); created || err != nil {
			t.Error("second start:", created, err)
		}
		if again, _ := ReadTokenFile(filepath.Join(f.dir, TokenFile)); again != f.token {
			t.Error("the file changed")
		}
	})
}

func TestBootstrapAfterCrash(t *testing.T) {
	s := bare(t)
	dir := t.TempDir()
	token, _ := newToken()
	if err := writeTokenFile(filepath.Join(dir, TokenFile), token); err != nil {
		t.Fatal(err)
	}
	if created, err := s.Bootstrap(t.Context(), dir, os.Getenv(BootstrapVariable)); !created || err != nil {
		t.Fatal(created, err)
	}
	if _, err := s.Authenticate(t.Context(), token); err != nil {
		t.Error(err)
	}
	if rows, _ := s.ListTokens(t.Context(), DefaultOrg); len(rows) != 1 {
		t.Error(rows)
	}
}

func TestBootstrapRubbishInFile(t *testing.T) {
	s := bare(t)
	dir := t.TempDir()
	path := filepath.Join(dir, TokenFile)
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if created, err := s.Bootstrap(t.Context(), dir, os.Getenv(BootstrapVariable)); !created || err != nil {
		t.Fatal(created, err)
	}
	token, _ := ReadTokenFile(path)
	if _, err := s.Authenticate(t.Context(), token); err != nil {
		t.Error(err)
	}
}

func TestBootstrapGivenToken(t *testing.T) {
	s := bare(t)
	ctx, dir, given := t.Context(), t.TempDir(), strings.Repeat("g", 40)
	if _, err := s.Bootstrap(ctx, dir, "short"); err == nil {
		t.Error("a short token is taken")
	}
	if created, err := s.Bootstrap(ctx, dir, given); !created || err != nil {
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
	if created, err := s.Bootstrap(ctx, dir, given); !created || err != nil {
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

func TestBootstrapTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		s := New(st, service.Env{Now: time.Now, NewID: ci.NewID}, slog.New(slog.DiscardHandler))
		var wg sync.WaitGroup
		var made atomic.Int64
		for range 8 {
			dir := t.TempDir()
			wg.Go(func() {
				created, err := s.Bootstrap(t.Context(), dir, os.Getenv(BootstrapVariable))
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
