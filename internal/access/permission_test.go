package access

import (
	"errors"
	"slices"
	"testing"
)

// permissions lists what a role has, sorted.
func permissions(r Role) []Permission {
	var out []Permission
	for p := range lowest {
		if r.Can(p) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func TestXC145PermissionTable(t *testing.T) {
	table := map[Role][]Permission{
		Auditor: {
			"context.read", "audit.read", "run.read", "event_log.read", "access_log.read", "event_dlq.read", "scaler.read",
		},
		Admin: {
			"context.create", "context.update", "context.delete", "secret.read", "secret.write", "secret.delete", "secret.reveal",
			"run.cancel", "run.trigger", "event_log.read_payload", "scheduled_job.trigger", "attestation.retry", "event_dlq.manage",
			"orchestrator.drain", "ci_trust.read", "ci_trust.admin", "peer.manage", "scaler.manage", "source.manage", "backend.manage",
			"maintenance", "config.manage",
		},
		Owner: {"token.manage", "key.rotate", "db.migrate"},
	}
	var have []Permission
	for _, role := range []Role{Auditor, Admin, Owner} {
		have = append(have, table[role]...)
		slices.Sort(have)
		if got := permissions(role); !slices.Equal(got, have) {
			t.Errorf("%s has %v, want %v", role, got, have)
		}
	}
	for _, role := range []Role{"", "root", "Owner"} {
		if p := permissions(role); len(p) != 0 || role.Valid() {
			t.Errorf("role %q has %v", role, p)
		}
	}
	if Owner.Can("made.up") || (Principal{Role: Owner}).Can("") {
		t.Error("a permission outside the table is given")
	}
	err := Principal{Role: Auditor}.Require(RunCancel)
	if !errors.Is(err, ErrForbidden) || err.Error() != "role auditor lacks permission run.cancel" {
		t.Error(err)
	}
}

func TestXC146Scope(t *testing.T) {
	all, one := Principal{}, Principal{RoutingKey: "k"}
	if all.Scoped() || !all.Sees("k") || !one.Scoped() || !one.Sees("k") || one.Sees("other") || one.Sees("") {
		t.Error("scope")
	}
}
