package storetest

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/store"
)

// A page of a list goes along the list's index: its cost is that of the rows it looks at, however long the list is.
func TestListsGoAlongTheirIndex(t *testing.T) {
	all := statements(t)
	d := SQLiteDatabase(t)
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(d.Config.Dir, store.FileName)}).EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, want := range map[string]string{
		"ReadRuns":            "SEARCH execution_runs USING INDEX execution_runs_list",
		"ReadRunsFloor":       "SEARCH r USING COVERING INDEX execution_runs_list",
		"ReadRunsOfDelivery":  "SEARCH r USING INDEX execution_runs_list",
		"ReadOpenRuns":        "USING INDEX execution_runs_open",
		"ReadLastFailure":     "SEARCH r USING INDEX execution_runs_failed",
		"ReadDeliveries":      "SEARCH d USING INDEX deliveries_list",
		"ReadDeliveriesFloor": "SEARCH d USING COVERING INDEX deliveries_list",
		"ReadLastDeliveries":  "SEARCH l USING INDEX deliveries_list",
	} {
		plan := explain(t, db, all[name])
		if !strings.Contains(plan, want) {
			t.Errorf("%s does not say %q:\n%s", name, want, plan)
		}
		if pages := name == "ReadRuns" || name == "ReadDeliveries"; pages && strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s sorts what it reads:\n%s", name, plan)
		}
	}
}

// explain is how SQLite would answer a statement, a step a line.
func explain(t *testing.T, db *sql.DB, statement string) string {
	t.Helper()
	params := 0
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(statement, -1) {
		n, _ := strconv.Atoi(m[1])
		params = max(params, n)
	}
	rows, err := db.Query("EXPLAIN QUERY PLAN "+store.StripLocking(statement), make([]any, params)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, statement)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(step + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
