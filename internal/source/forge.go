package source

import (
	"context"
	"errors"
	"time"
)

// The secrets of a source, by key in Config.Secrets.
const (
	SecretWebhook    = "webhook"     // what senders sign with
	SecretWebhookOld = "webhook_old" // the one before a rotation; also accepted until it is dropped
	SecretToken      = "token"       // API and HTTPS clones
	SecretSSHKey     = "ssh_key"     // private key for SSH clones
)

// StatusState is the state of a commit status, in the words that most forges share.
type StatusState string

// The states of a commit status. Forges that know fewer map them.
const (
	StatusPending StatusState = "pending" // queued
	StatusRunning StatusState = "running"
	StatusSuccess StatusState = "success"
	StatusFailure StatusState = "failure" // the workflow's fault: a step failed
	StatusError   StatusState = "error"   // not the workflow's fault: cancelled, never started, lost
)

// CommitStatus is one line beside a commit. A later report of the same SHA and Context replaces it.
type CommitStatus struct {
	SHA         string
	Context     string // kici/<workflow>, kici/<workflow>/job/<name> (PIPE-7); at most MaxStatusContext bytes
	State       StatusState
	Description string // a sentence; adapters cut it to what the forge takes
	URL         string // of the run's page; "" for none
}

// MaxStatusContext bounds CommitStatus.Context in bytes; the forges take 255.
const MaxStatusContext = 255

// Reporter is implemented by sources that can show a run's result beside its commit. Reporting the same status twice is
// harmless.
type Reporter interface {
	ReportStatus(context.Context, CommitStatus) error
}

// HookInstaller is implemented by sources that can create their own webhook at the forge by its API. It is safe to call twice:
// an existing hook with the same address is brought up to date.
type HookInstaller interface {
	InstallHook(ctx context.Context, address string) error
}

// HeadLister is implemented by sources whose branches and tags can be listed: full ref → commit. It asks the origin, not a copy.
type HeadLister interface {
	Heads(context.Context) (map[string]string, error)
}

// MissedDelivery is a delivery that the forge says it could not deliver.
type MissedDelivery struct {
	ID    string // what Redeliver takes; the forge's, not the delivery's GUID
	GUID  string // the delivery id that the webhook's header carries
	Event string
	At    time.Time
}

// Redeliverer is implemented by sources whose forge keeps a log of deliveries and can repeat them (ING-24).
type Redeliverer interface {
	// Missed lists the deliveries since a time of which no attempt was answered with success, oldest first, at most limit.
	Missed(ctx context.Context, since time.Time, limit int) ([]MissedDelivery, error)
	Redeliver(ctx context.Context, id string) error
}

// RetryAt says when a request that failed for a passing reason (rate limit, forge down) may be made again.
type RetryAt struct {
	At    time.Time
	Cause error
}

// Error implements error.
func (e *RetryAt) Error() string { return e.Cause.Error() }

// Unwrap gives the cause, which is or wraps ErrUnreachable.
func (e *RetryAt) Unwrap() error { return e.Cause }

// RetryTime returns when err may be tried again, zero when it does not say.
func RetryTime(err error) time.Time {
	if r, ok := errors.AsType[*RetryAt](err); ok {
		return r.At
	}
	return time.Time{}
}
