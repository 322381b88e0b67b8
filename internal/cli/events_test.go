package cli

import (
	"encoding/json"

	"github.com/kici-go/kici/client"
)

// events is what the fake server knows of internal events.
func events(runID string) map[string]any {
	one := int64(1)
	none := int64(0)
	done := client.Event{
		ID: "ev-1", Name: "deploy.done", State: "processed", Outcome: "matched", Matched: &one, Emitter: "step", Source: "shop", RoutingKey: "generic:default:src-1",
		Repo: "acme/shop", RunID: runID, ChainDepth: 1, Attempts: 1, CreatedAt: at(0), ProcessedAt: atp(0), ExpiresAt: at(604_800),
	}
	blocked := client.Event{
		ID: "ev-2", Name: evil, State: "processed", Outcome: "trust-blocked", Matched: &none, Emitter: "operator", Actor: "ann", Attempts: 1, CreatedAt: at(0), ExpiresAt: at(604_800),
	}
	dead := client.Event{
		ID: "ev-3", Name: "deploy.done", State: "dlq", Emitter: "step", Repo: "acme/shop", RunID: runID, Attempts: 5, Error: "tell of acme/site: the forge is away",
		DeadAt: atp(10), DeadReason: "exhausted_retries", CreatedAt: at(0), ExpiresAt: at(604_800),
	}
	detail := done
	detail.Payload = json.RawMessage(`{"version":"1.2"}`)
	detail.Runs = []client.EventRun{{RunID: "r-2", RegistrationID: "reg-1", Number: 12, Repo: "acme/site", Workflow: "publish", Status: "success", URL: "http://ci/runs/r-2"}}
	detail.Explanation = []string{"A step of run " + runID + " of acme/shop emitted it.", "It started publish of acme/site: run #12 is success."}
	deadDetail := dead
	deadDetail.Withheld = "the payload is only shown with the permission event_log.read_payload"
	deadDetail.Explanation = []string{"It is a dead letter: 5 attempts failed, the last one with: tell of acme/site: the forge is away. Once that is mended: kici event dlq retry ev-3"}
	trust := client.Trust{
		ID: "tr-1", SourceRoutingKey: "generic:default:src-1", SourceRepo: "acme/shop", TargetRoutingKey: "generic:default:src-2", TargetRepo: "acme/site",
		EventNames: &[]string{"deploy.*"}, Enabled: true, CreatedAt: at(0), CreatedBy: "ann",
	}
	return map[string]any{
		"GET /events":                client.EventList{Events: []client.Event{done, blocked, dead}, NextCursor: "ev-3"},
		"GET /events/ev-1":           detail,
		"GET /events/ev-3":           deadDetail,
		"POST /events/emit":          client.EmittedEvent{EventID: "ev-9"},
		"GET /event-dlq":             client.EventList{Events: []client.Event{dead}},
		"GET /event-dlq/count":       client.DeadLetterCount{Count: 1},
		"POST /event-dlq/ev-3/retry": done,
		"DELETE /event-dlq/ev-3":     map[string]bool{"deleted": true},
		"GET /trust":                 client.TrustList{Trust: []client.Trust{trust}},
		"POST /trust":                trust,
		"DELETE /trust/tr-1":         map[string]bool{"deleted": true},
	}
}
