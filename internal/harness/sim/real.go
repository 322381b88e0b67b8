package sim

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store"
)

// A world in real time has its database on a PostgreSQL server, and is otherwise the same: the same servers, agents, people and faults,
// four times faster. What it loses is that a seed repeats itself; what it gains is the engine with its own isolation, locks and
// notifications.
const realPace = 4

// inRealTime takes out of a plan what needs a clock of our own, or time: the wait for leases that nothing renews.
func (p *plan) inRealTime() {
	p.leap, p.pause = 0, 0
	p.faultsFor = min(p.faultsFor, 9*time.Second)
	p.workFor = min(p.workFor, p.faultsFor)
}

func inRealTime(t *testing.T, o Options, began time.Time) Result {
	t.Helper()
	pace = realPace
	w := newWorld(o)
	var err error
	if w.postgres, err = newPostgres(o.Server); err != nil {
		t.Fatal(err)
	}
	w.play()
	if err := w.postgres.drop(o.Server); err != nil {
		w.violate("harness", "drop the database: %v", err)
	}
	r := w.result()
	r.Real = time.Since(began)
	return r
}

// postgres is a database of one world.
type postgres struct {
	name, url string
	pool      *sql.DB
}

// address is what a server is told; "" for none.
func (p *postgres) address() string {
	if p == nil {
		return ""
	}
	return p.url
}

// newPostgres makes a migrated, guarded, empty database.
func newPostgres(server string) (*postgres, error) {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	p := &postgres{name: "kici_sim_" + hex.EncodeToString(random[:])}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("read the address of the PostgreSQL server: %w", err)
	}
	u.Path = "/" + p.name
	p.url = u.String()
	if err := onServer(server, "CREATE DATABASE "+p.name); err != nil {
		return nil, err
	}
	st, err := store.Open(context.Background(), store.Config{URL: p.url})
	if err == nil {
		err = st.Close()
	}
	if err == nil {
		p.pool, err = sql.Open("pgx", p.url)
	}
	if err == nil {
		_, err = p.pool.ExecContext(context.Background(), postgresGuards())
	}
	if err != nil {
		return nil, errors.Join(err, p.drop(server))
	}
	return p, nil
}

func (p *postgres) drop(server string) error {
	if p.pool != nil {
		_ = p.pool.Close()
	}
	return onServer(server, "DROP DATABASE IF EXISTS "+p.name+" WITH (FORCE)")
}

func onServer(server, statement string) error {
	pool, err := sql.Open("pgx", server)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	if _, err := pool.ExecContext(context.Background(), statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

var guard = regexp.MustCompile(`(?s)CREATE TRIGGER (\w+) (AFTER [^\n]*?ON \w+)\s+(?:WHEN (.*?) )?BEGIN\n(.*?)END;\n`)

// postgresGuards are the guards in PostgreSQL's words, in which a trigger is a function.
func postgresGuards() string {
	var b strings.Builder
	b.WriteString("CREATE TABLE sim_violations (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT NOT NULL);\n")
	for _, g := range guard.FindAllStringSubmatch(guards, -1) {
		when := ""
		if g[3] != "" {
			when = " WHEN (" + g[3] + ")"
		}
		fmt.Fprintf(&b, "CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN\n%sRETURN NULL; END $$;\n", g[1], g[4])
		fmt.Fprintf(&b, "CREATE TRIGGER %s %s FOR EACH ROW%s EXECUTE FUNCTION %s();\n", g[1], g[2], when, g[1])
	}
	return b.String()
}
