// Package access decides who may do what: admin tokens and their roles, dashboard sessions and one-time login links,
// agent tokens, and the audit log of it all. Whether an agent may register belongs to fleet, which asks here only whether
// its token is good.
package access

import (
	"fmt"
)

// Permission is one thing that a route may demand (admin.md).
type Permission string

// Permissions.
const (
	RunRead             Permission = "run.read"
	RunCancel           Permission = "run.cancel"
	RunTrigger          Permission = "run.trigger"
	ContextRead         Permission = "context.read"
	ContextCreate       Permission = "context.create"
	ContextUpdate       Permission = "context.update"
	ContextDelete       Permission = "context.delete"
	AuditRead           Permission = "audit.read"
	AccessLogRead       Permission = "access_log.read"
	EventLogRead        Permission = "event_log.read"
	EventLogReadPayload Permission = "event_log.read_payload"
	EventDLQRead        Permission = "event_dlq.read"
	EventDLQManage      Permission = "event_dlq.manage"
	SecretRead          Permission = "secret.read"
	SecretWrite         Permission = "secret.write"
	SecretDelete        Permission = "secret.delete"
	SecretReveal        Permission = "secret.reveal"
	SourceManage        Permission = "source.manage"
	BackendManage       Permission = "backend.manage"
	ScalerRead          Permission = "scaler.read"
	ScalerManage        Permission = "scaler.manage"
	PeerManage          Permission = "peer.manage"
	ScheduledJobTrigger Permission = "scheduled_job.trigger"
	AttestationRetry    Permission = "attestation.retry"
	OrchestratorDrain   Permission = "orchestrator.drain"
	CITrustRead         Permission = "ci_trust.read"
	CITrustAdmin        Permission = "ci_trust.admin"
	Maintenance         Permission = "maintenance"
	ConfigManage        Permission = "config.manage"
	TokenManage         Permission = "token.manage"
	KeyRotate           Permission = "key.rotate"
	DBMigrate           Permission = "db.migrate"
)

// Role is a named set of permissions. The empty role has none.
type Role string

// Roles, from the strongest.
const (
	Owner   Role = "owner"
	Admin   Role = "admin"
	Auditor Role = "auditor"
)

// rank orders roles for "only up to the caller's own" (ADM-9); 0 is no role.
func (r Role) rank() int {
	switch r {
	case Owner:
		return 3
	case Admin:
		return 2
	case Auditor:
		return 1
	}
	return 0
}

// Valid tells whether the role exists.
func (r Role) Valid() bool { return r.rank() > 0 }

// lowest is the weakest role that has each permission.
var lowest = map[Permission]Role{
	RunRead: Auditor, ContextRead: Auditor, AuditRead: Auditor, AccessLogRead: Auditor, EventLogRead: Auditor,
	EventDLQRead: Auditor, ScalerRead: Auditor,

	RunCancel: Admin, RunTrigger: Admin, ContextCreate: Admin, ContextUpdate: Admin, ContextDelete: Admin,
	EventLogReadPayload: Admin, EventDLQManage: Admin, SecretRead: Admin, SecretWrite: Admin, SecretDelete: Admin,
	SecretReveal: Admin, SourceManage: Admin, BackendManage: Admin, ScalerManage: Admin, PeerManage: Admin,
	ScheduledJobTrigger: Admin, AttestationRetry: Admin, OrchestratorDrain: Admin, CITrustRead: Admin,
	CITrustAdmin: Admin, Maintenance: Admin, ConfigManage: Admin,

	TokenManage: Owner, KeyRotate: Owner, DBMigrate: Owner,
}

// Known tells whether there is such a permission.
func (p Permission) Known() bool { _, known := lowest[p]; return known }

// Can tells whether the role has the permission. Nobody has one that is not in the table.
func (r Role) Can(p Permission) bool {
	need, known := lowest[p]
	return known && r.rank() >= need.rank()
}

// Kinds of actors, as in the access log.
const (
	KindUser   = "user"    // a dashboard session
	KindAPIKey = "api_key" // a bearer token
	KindAgent  = "agent"
	KindSystem = "system"
)

// Principal is who asks.
type Principal struct {
	TokenID    string
	OrgID      string // where it acts
	Home       string // organisation of its token, when it acts in another one
	Label      string
	Role       Role
	RoutingKey string // "" sees every source
	Kind       string
}

// Can tells whether the principal has the permission.
func (p Principal) Can(perm Permission) bool { return p.Role.Can(perm) }

// Require returns a *Denied error when the principal lacks the permission.
func (p Principal) Require(perm Permission) error {
	if p.Can(perm) {
		return nil
	}
	return &Denied{Role: p.Role, Permission: perm}
}

// Scoped tells whether the principal is limited to one routing key (ADM-5).
func (p Principal) Scoped() bool { return p.RoutingKey != "" }

// Sees tells whether objects of the routing key are within the principal's scope.
func (p Principal) Sees(routingKey string) bool {
	return p.RoutingKey == "" || p.RoutingKey == routingKey
}

// Denied says which permission a role lacks (ADM-4).
type Denied struct {
	Role       Role
	Permission Permission
}

func (d *Denied) Error() string {
	return fmt.Sprintf("role %s lacks permission %s", d.Role, d.Permission)
}

// Is makes errors.Is(err, ErrForbidden) true.
func (d *Denied) Is(target error) bool { return target == ErrForbidden }
