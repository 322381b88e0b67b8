package storetest

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kici-go/kici/internal/store"
)

// statements reads every query as sqlc has generated it, by name.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../db/*.sql.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no generated queries", err)
	}
	all := map[string]string{}
	query := regexp.MustCompile("(?s)const \\w+ = `-- name: (\\w+) :\\w+\n(.*?)`")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := query.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 && !strings.Contains(string(text), "const ") {
			continue
		}
		if want := strings.Count(string(text), "`-- name: "); len(found) != want {
			t.Errorf("%s: understood %d of %d queries", file, len(found), want)
		}
		for _, m := range found {
			all[m[1]] = m[2]
		}
	}
	return all
}

// Every query of every room must be understood by both engines, with the same number of parameters.
func TestAllStatementsPrepare(t *testing.T) {
	all := statements(t)
	if len(all) < 50 {
		t.Errorf("only %d statements found", len(all))
	}
	t.Run("sqlite", func(t *testing.T) {
		d := SQLiteDatabase(t)
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(d.Config.Dir, store.FileName)}).EscapedPath())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for name, text := range all {
			stmt, err := db.Prepare(store.StripLocking(text))
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
				continue
			}
			_ = stmt.Close() //nolint:sqlclosecheck // hundreds of them
		}
	})
	t.Run("postgres", func(t *testing.T) {
		d := PostgreSQLDatabase(t)
		conn, err := pgx.Connect(t.Context(), d.Config.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		for name, text := range all {
			if _, err := conn.Prepare(t.Context(), name, text); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
		}
	})
}

// What sqlc lets pass and one engine refuses or, worse, understands differently (D32).
func TestStatementsKeepTheRules(t *testing.T) {
	bad := map[string]*regexp.Regexp{
		"no clock of the database":      regexp.MustCompile(`(?i)\bnow\(\)|current_timestamp|clock_timestamp|datetime\(`),
		"casts are written CAST(x AS)":  regexp.MustCompile(`::`),
		"no arrays, no sqlc.slice":      regexp.MustCompile(`(?i)\bANY\(|/\*SLICE|unnest\(`),
		"LIKE differs in case: lower()": regexp.MustCompile(`(?i)\bILIKE\b`),
	}
	for name, text := range statements(t) {
		for rule, pattern := range bad {
			if pattern.MatchString(text) {
				t.Errorf("%s: %s\n%s", name, rule, text)
			}
		}
	}
}
