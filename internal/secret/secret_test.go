package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func testKeys(t testing.TB, seed byte) *Keyring {
	t.Helper()
	k, err := NewKeyring(bytes.Repeat([]byte{seed}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealAndOpen(t *testing.T) {
	k := testKeys(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		identity, plain := rapid.String().Draw(t, "identity"), rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		sealed, err := k.Seal(identity, plain)
		if err != nil {
			t.Fatal(err)
		}
		if len(plain) > 3 && bytes.Contains(sealed, plain) {
			t.Fatal("not encrypted")
		}
		got, err := k.Open(identity, sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatal(got, err)
		}
		if _, err := k.Open(identity+"x", sealed); !errors.Is(err, ErrTampered) {
			t.Fatal("opens for another row:", err)
		}
		again, _ := k.Seal(identity, plain)
		if bytes.Equal(again, sealed) {
			t.Fatal("sealing is not random")
		}
	})
}

// Every single changed, missing or added byte is noticed.
func TestTamper(t *testing.T) {
	k := testKeys(t, 1)
	sealed, err := k.Seal("id", []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(sealed)
			bad[i] ^= flip
			if _, err := k.Open("id", bad); err == nil {
				t.Errorf("byte %d may change", i)
			}
		}
		if _, err := k.Open("id", sealed[:i]); !errors.Is(err, ErrTampered) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := k.Open("id", append(bytes.Clone(sealed), 0)); !errors.Is(err, ErrTampered) {
		t.Error(err)
	}
}

func TestWrongKey(t *testing.T) {
	one, two := testKeys(t, 1), testKeys(t, 2)
	sealed, err := one.Seal("id", []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Open("id", sealed); !errors.Is(err, ErrOtherKey) || !strings.Contains(err.Error(), KeyVariable) {
		t.Error(err)
	}
}

func TestLoadKeyring(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadKeyring(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, KeyFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	again, err := LoadKeyring(dir, "")
	if err != nil || again.Version() != first.Version() {
		t.Error("the key changed", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Error(entries)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKeyring(dir, ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKeyring(dir, ""); err == nil {
		t.Error("a damaged key file is taken")
	}
	if text, _ := os.ReadFile(path); string(text) != "short" {
		t.Error("a damaged key file was replaced")
	}
}

func TestKeyFromEnvironment(t *testing.T) {
	key := bytes.Repeat([]byte{0xfb}, keySize)
	want, _ := NewKeyring(key)
	dir := t.TempDir()
	for _, text := range []string{
		hex.EncodeToString(key), strings.ToUpper(hex.EncodeToString(key)), base64.StdEncoding.EncodeToString(key),
		base64.RawURLEncoding.EncodeToString(key), " " + hex.EncodeToString(key) + "\n",
	} {
		k, err := LoadKeyring(dir, text)
		if err != nil || k.Version() != want.Version() {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"x", strings.Repeat("0", 63), strings.Repeat("g", 64), base64.StdEncoding.EncodeToString(key[:31])} {
		if _, err := LoadKeyring(dir, text); err == nil || (len(text) > 10 && strings.Contains(err.Error(), text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Error("a key file was made beside the variable")
	}
}

func each(t *testing.T, fn func(t *testing.T, s *Service, st *store.Store)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		if err := st.Write(ctx, func(tx *store.Tx) error {
			return errors.Join(tx.InsertOrg(ctx, "o", 1), tx.InsertOrg(ctx, "other", 1))
		}); err != nil {
			t.Fatal(err)
		}
		fn(t, New(st, testKeys(t, 1)), st)
	})
}

func set(t *testing.T, s *Service, org, scope, key, value string) {
	t.Helper()
	if err := s.SetSystem(t.Context(), org, scope, key, value); err != nil {
		t.Fatal(err)
	}
}

func TestSetGetListDelete(t *testing.T) {
	each(t, func(t *testing.T, s *Service, _ *store.Store) {
		ctx := t.Context()
		set(t, s, "o", "", "TOKEN", "one")
		set(t, s, "o", "", "TOKEN", "two")
		set(t, s, "o", "repo/a/b", "X", "")
		set(t, s, "o", "__source__/1", "webhook", "w")
		set(t, s, "other", "", "TOKEN", "theirs")
		for _, c := range []struct{ org, scope, key, want string }{
			{"o", "", "TOKEN", "two"}, {"o", "repo/a/b", "X", ""}, {"o", "__source__/1", "webhook", "w"}, {"other", "", "TOKEN", "theirs"},
		} {
			if got, err := s.Get(ctx, c.org, c.scope, c.key); err != nil || got != c.want {
				t.Errorf("%v: %q, %v", c, got, err)
			}
		}
		if _, err := s.Get(ctx, "o", "", "NONE"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "NONE") {
			t.Error(err)
		}
		list, err := s.List(ctx, "o")
		if err != nil || len(list) != 2 || list[0].Key != "TOKEN" || list[1].Scope != "repo/a/b" || !list[0].Readable {
			t.Error(list, err)
		}
		if text := fmt.Sprintf("%+v", list); strings.Contains(text, "two") {
			t.Error("a listing shows values")
		}
		if err := s.Delete(ctx, "o", "", "TOKEN"); err != nil {
			t.Error(err)
		}
		if err := s.Delete(ctx, "o", "", "TOKEN"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if got, err := s.Get(ctx, "other", "", "TOKEN"); err != nil || got != "theirs" {
			t.Error("deleting reached another organisation:", got, err)
		}
	})
}

func TestXC121ReservedScopes(t *testing.T) {
	each(t, func(t *testing.T, s *Service, _ *store.Store) {
		ctx := t.Context()
		for _, scope := range []string{"__system__", "__source__/1", "__"} {
			if err := s.Set(ctx, "o", scope, "X", "v"); !errors.Is(err, ErrReserved) {
				t.Errorf("set %s: %v", scope, err)
			}
			set(t, s, "o", scope, "X", "v")
			if err := s.Delete(ctx, "o", scope, "X"); !errors.Is(err, ErrReserved) {
				t.Errorf("delete %s: %v", scope, err)
			}
		}
		if list, err := s.List(ctx, "o"); len(list) != 0 || err != nil {
			t.Error(list, err)
		}
		if m, err := s.Resolve(ctx, "o"); len(m) != 0 || err != nil {
			t.Error(m, err)
		}
	})
}

func TestNames(t *testing.T) {
	s := New(storetest.SQLite(t), testKeys(t, 1))
	for _, c := range []struct{ scope, key, value string }{
		{"", "", "v"},
		{"", "1X", "v"},
		{"", "a b", "v"},
		{"", "a.b", "v"},
		{"", "__x", "v"},
		{"", "é", "v"},
		{"", "-a", "v"},
		{"", "a|b", "v"},
		{"", "a\n", "v"},
		{"", strings.Repeat("a", 129), "v"},
		{"/", "X", "v"},
		{"a//b", "X", "v"},
		{"a/", "X", "v"},
		{"/a", "X", "v"},
		{"a b", "X", "v"},
		{"..", "X", "v"},
		{"a/../b", "X", "v"},
		{"a|b", "X", "v"},
		{"a\n", "X", "v"},
		{strings.Repeat("a", 256), "X", "v"},
		{"", "X", strings.Repeat("v", maxValue+1)},
	} {
		if err := s.SetSystem(t.Context(), "o", c.scope, c.key, c.value); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "vvv") {
			t.Errorf("scope %q key %q: %v", c.scope, c.key, err)
		}
	}
}

func TestResolve(t *testing.T) {
	each(t, func(t *testing.T, s *Service, _ *store.Store) {
		ctx := t.Context()
		set(t, s, "o", "", "A", "org")
		set(t, s, "o", "", "B", "org")
		set(t, s, "o", RepoScope("team/app"), "B", "repo")
		set(t, s, "o", RepoScope("team/app"), "C", "repo")
		set(t, s, "other", "", "A", "theirs")
		check := func(repo string, want map[string]string) {
			t.Helper()
			if got, err := s.ResolveFor(ctx, "o", repo); err != nil || !maps.Equal(got, want) {
				t.Errorf("%q: %v, %v", repo, got, err)
			}
		}
		check("", map[string]string{"A": "org", "B": "org"})
		check("team/app", map[string]string{"A": "org", "B": "repo", "C": "repo"})
		check("team/ap", map[string]string{"A": "org", "B": "org"})
		check("team", map[string]string{"A": "org", "B": "org"})
		if got, err := s.Resolve(ctx, "nobody"); len(got) != 0 || err != nil {
			t.Error(got, err)
		}
	})
}

// A sealed value that was moved to another row, organisation or key is refused, and fails the whole job.
func TestMovedRow(t *testing.T) {
	each(t, func(t *testing.T, s *Service, st *store.Store) {
		ctx := t.Context()
		set(t, s, "o", "", "PUBLIC", "harmless")
		set(t, s, "o", "__system__", "KEY", "precious")
		row, err := st.Read().Secret(ctx, "o", "__system__", "KEY")
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Write(ctx, func(tx *store.Tx) error {
			return tx.UpsertSecret(ctx, db.UpsertSecretParams{OrgID: "o", Key: "PUBLIC", Sealed: row.Sealed, KeyVersion: row.KeyVersion})
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, "o", "", "PUBLIC"); !errors.Is(err, ErrTampered) || got != "" {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := s.Resolve(ctx, "o"); !errors.Is(err, ErrTampered) || got != nil || !strings.Contains(err.Error(), "PUBLIC") {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestVerify(t *testing.T) {
	each(t, func(t *testing.T, s *Service, st *store.Store) {
		ctx := t.Context()
		for range 2 {
			if err := s.Verify(ctx); err != nil {
				t.Fatal(err)
			}
		}
		err := New(st, testKeys(t, 2)).Verify(ctx)
		if err == nil || !strings.Contains(err.Error(), KeyVariable) {
			t.Error(err)
		}
		set(t, s, "o", "", "X", "v")
		stranger := New(st, testKeys(t, 2))
		if _, err := stranger.Resolve(ctx, "o"); !errors.Is(err, ErrOtherKey) {
			t.Error(err)
		}
		if list, err := stranger.List(ctx, "o"); err != nil || len(list) != 1 || list[0].Readable {
			t.Error(list, err)
		}
	})
}

// A source and its secret appear together or not at all.
func TestPutInTransaction(t *testing.T) {
	each(t, func(t *testing.T, s *Service, st *store.Store) {
		ctx, boom := t.Context(), errors.New("boom")
		put := func(tx *store.Tx) error { return s.Put(ctx, tx, Name{"o", "__source__/1", "webhook"}, "v") }
		if err := st.Write(ctx, func(tx *store.Tx) error { return errors.Join(put(tx), boom) }); !errors.Is(err, boom) {
			t.Error(err)
		}
		if _, err := s.Get(ctx, "o", "__source__/1", "webhook"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if err := st.Write(ctx, put); err != nil {
			t.Error(err)
		}
		if err := st.Write(ctx, func(tx *store.Tx) error { return s.DropScope(ctx, tx, "o", "__source__/1") }); err != nil {
			t.Error(err)
		}
		if _, err := s.Get(ctx, "o", "__source__/1", "webhook"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	k := testKeys(f, 1)
	sealed, _ := k.Seal("id", []byte("value"))
	f.Add("id", sealed)
	f.Add("", []byte{version})
	f.Fuzz(func(t *testing.T, identity string, data []byte) {
		plain, err := k.Open(identity, data)
		// Each fuzzing process seals the seed anew, so that what opens need not be this one's bytes; but it is that value of that row.
		if err == nil && (identity != "id" || string(plain) != "value") {
			t.Errorf("forged %q", plain)
		}
	})
}
