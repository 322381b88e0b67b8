package event

import "github.com/kici-go/kici/internal/store/db"

// States of an event, derived from its row (EVT-30).
const (
	StatePending   = "pending"
	StateLeased    = "leased"
	StateRetrying  = "retrying"
	StateProcessed = "processed"
	StateDead      = "dlq"
)

// State is what an event is at.
func State(e db.KiciEvent) string {
	switch {
	case e.DlqAt.Valid:
		return StateDead
	case e.Processed:
		return StateProcessed
	case e.ClaimedAt.Valid:
		return StateLeased
	case e.NextRetryAt.Valid:
		return StateRetrying
	}
	return StatePending
}
