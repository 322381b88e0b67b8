package access

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"sync"

	"github.com/kici-go/kici/internal/store/db"
)

// Where an action came from (AUD-1).
const (
	SourceHTTP      = "admin_http"
	SourceCLI       = "admin_cli"
	SourceDashboard = "dashboard"
	SourceSystem    = "system"
)

// How it ended.
const (
	Allowed     = "allowed"
	DeniedEntry = "denied"
	Failed      = "error"
)

// Entry is one row of the access log. It never holds secret values, tokens or payloads (AUD-6).
type Entry struct {
	Principal Principal
	Action    string // dotted, AUD-3
	Target    string
	Source    string
	Outcome   string
	RequestID string
	Error     string
	Meta      map[string]any
	Rate      float64 // of allowed entries kept, chosen by actor and request (AUD-2); 0 and 1 keep all
}

// Bounds of what an entry may hold, and of entries that wait to be written.
const (
	textKept    = 2000
	metaKept    = 8000
	entriesKept = 10_000
)

// Audit records the entry. It never blocks and never fails the action (AUD-1): Run writes the row, and a row that cannot
// be written is logged and counted.
func (s *Service) Audit(_ context.Context, e Entry) {
	if !e.sampled() {
		return
	}
	row, err := s.accessRow(e)
	if err != nil {
		s.log.Error("audit entry", "action", e.Action, "err", err)
	}
	if !s.audit.put(row) {
		s.log.Error("audit row lost: too many wait", "action", e.Action, "actor", row.Actor, "target", row.Target, "outcome", e.Outcome)
	}
	s.wake.Signal()
}

// AuditLost counts entries that were dropped because the store could not take them for too long.
func (s *Service) AuditLost() int64 {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	return s.audit.lost
}

func (s *Service) accessRow(e Entry) (db.InsertAccessLogParams, error) {
	if e.Principal.Kind == "" {
		e.Principal.Kind = KindSystem
	}
	actor := e.Principal.TokenID
	if actor == "" {
		actor = e.Principal.Label
	}
	about := map[string]any{}
	maps.Copy(about, e.Meta)
	if e.Principal.Label != "" {
		about["label"] = e.Principal.Label
	}
	if e.Principal.Home != "" {
		about["tokenOrg"] = e.Principal.Home
	}
	meta, err := json.Marshal(about)
	if err != nil || len(meta) > metaKept {
		meta = []byte(`{"truncated":true}`)
	}
	return db.InsertAccessLogParams{
		ID: s.env.NewID(), OrgID: e.Principal.OrgID, At: s.env.NowMs(), ActorKind: e.Principal.Kind, Actor: cut(actor),
		Action: cut(e.Action), Target: cut(e.Target), Source: e.Source, Outcome: e.Outcome, RequestID: cut(e.RequestID),
		Error: cut(e.Error), Meta: string(meta),
	}, err
}

func cut(s string) string { return s[:min(len(s), textKept)] }

// sampled keeps what is denied, failed or made by agents, and of the rest a stable share.
func (e Entry) sampled() bool {
	if e.Rate <= 0 || e.Rate >= 1 || e.Outcome != Allowed || e.Principal.Kind == KindAgent {
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.Principal.TokenID + "\x00" + e.RequestID))
	return float64(h.Sum64()%1_000_000) < e.Rate*1_000_000
}

// auditQueue holds rows that are not written yet.
type auditQueue struct {
	mu   sync.Mutex
	rows []db.InsertAccessLogParams
	lost int64
}

func (q *auditQueue) put(row db.InsertAccessLogParams) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.rows) >= entriesKept {
		q.lost++
		return false
	}
	q.rows = append(q.rows, row)
	return true
}

// take returns up to 500 rows and whether more wait.
func (q *auditQueue) take() (rows []db.InsertAccessLogParams, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rows = q.rows[:min(len(q.rows), 500)]
	q.rows = q.rows[len(rows):]
	return rows, len(q.rows) > 0
}

// putBack keeps rows whose write failed for the next attempt, as far as there is room.
func (q *auditQueue) putBack(rows []db.InsertAccessLogParams) {
	q.mu.Lock()
	defer q.mu.Unlock()
	room := max(entriesKept-len(q.rows), 0)
	if room < len(rows) {
		q.lost += int64(len(rows) - room)
		rows = rows[len(rows)-room:]
	}
	q.rows = append(append([]db.InsertAccessLogParams{}, rows...), q.rows...)
}
