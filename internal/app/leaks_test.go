package app

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// A token and a folder of agents that nobody knows of go while the server runs, and /metrics says so.
func TestLeaksAreCounted(t *testing.T) {
	s, _ := boot(t, Options{Tune: func(t *Tuning) { t.Scaler.Interval = 50 * time.Millisecond }})
	folder := filepath.Join(s.data.Path(), "agents", "scaler-bare-metal-0000dead")
	if err := os.MkdirAll(filepath.Join(folder, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, hash, prefix := access.NewAgentToken()
	err := s.store.Write(t.Context(), func(tx *store.Tx) error {
		return tx.InsertAgentToken(t.Context(), db.InsertAgentTokenParams{
			ID: "tok-lost", OrgID: access.DefaultOrg, TokenHash: hash, Prefix: prefix, Type: access.EphemeralToken, AgentID: "scaler-bare-metal-0000dead", Labels: "[]",
			MandatoryLabels: "[]", CreatedBy: "test", CreatedAt: 1, ExpiresAt: sql.NullInt64{},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	term, leads := s.leader.Term()
	for deadline := time.Now().Add(30 * time.Second); !leads; time.Sleep(10 * time.Millisecond) {
		if term, leads = s.leader.Term(); time.Now().After(deadline) {
			t.Fatal("it does not lead")
		}
	}
	report, err := s.cleanTokens(t.Context(), term)
	if err != nil || len(report) != 1 {
		t.Fatalf("%q, %v", report, err)
	}
	var text string
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, text = get(t, s.URL()+"/metrics")
		_, err := os.Stat(folder)
		if os.IsNotExist(err) && strings.Contains(text, `leaks_healed_total{kind="workspace"} 1`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the folder stays: %v", err)
		}
	}
	for _, want := range []string{`leaks_found_total{kind="workspace"} 1`, `leaks_found_total{kind="token"} 1`, `leaks_healed_total{kind="token"} 1`, `leaks_found_total{kind="container"} 0`} {
		if !strings.Contains(text, "kici_orch_scaler_"+want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}
