package sourcetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// Forge is a Fake with what forges can do beside being read: list their branches, keep a log of deliveries, make webhooks,
// and have forks.
type Forge struct {
	Fake

	missed      []source.MissedDelivery
	redelivered []string
	hooks       []string
	failLog     error
}

// Move sets a branch or tag to a commit; "" deletes it.
func (f *Forge) Move(ref, sha string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sha == "" {
		delete(f.refs, ref)
		return
	}
	f.refs[ref] = sha
}

// Miss puts a delivery into the log that could not be made.
func (f *Forge) Miss(d source.MissedDelivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missed = append(f.missed, d)
}

// FailLog makes everything about the log of deliveries and the webhooks fail; nil heals it.
func (f *Forge) FailLog(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failLog = err
}

// Redelivered are the ids that were asked for again.
func (f *Forge) Redelivered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.redelivered)
}

// Hooks are the addresses of the webhooks, with the secrets that they sign with.
func (f *Forge) Hooks() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hooks)
}

// Heads implements source.HeadLister.
func (f *Forge) Heads(ctx context.Context) (map[string]string, error) {
	if err := f.reach(ctx, "Heads"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.refs), nil
}

// Missed implements source.Redeliverer.
func (f *Forge) Missed(ctx context.Context, since time.Time, limit int) ([]source.MissedDelivery, error) {
	if err := f.reach(ctx, "Missed"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []source.MissedDelivery
	for _, d := range f.missed {
		if !d.At.Before(since) && len(out) < limit {
			out = append(out, d)
		}
	}
	return out, f.failLog
}

// Redeliver implements source.Redeliverer. It delivers nothing.
func (f *Forge) Redeliver(ctx context.Context, id string) error {
	if err := f.reach(ctx, "Redeliver"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failLog == nil {
		f.redelivered = append(f.redelivered, id)
	}
	return f.failLog
}

// InstallHook implements source.HookInstaller.
func (f *Forge) InstallHook(ctx context.Context, address string) error {
	if err := f.reach(ctx, "InstallHook"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failLog == nil {
		f.hooks = append(f.hooks, address+" "+f.config.Secrets[source.SecretWebhook])
	}
	return f.failLog
}

// ForgePullRequest is the body of a Forge's event "pull_request".
type ForgePullRequest struct {
	Number       int64
	Head, Base   string // commits
	Branch, Into string
	Fork         bool
}

// Normalize is the Fake's, and knows pull requests.
func (f *Forge) Normalize(ctx context.Context, d source.Delivery) (ci.Event, error) {
	if d.Event != "pull_request" {
		return f.Fake.Normalize(ctx, d)
	}
	c, branch := f.settings()
	var p ForgePullRequest
	if err := json.Unmarshal(d.Body, &p); err != nil {
		return ci.Event{}, fmt.Errorf("%w: %w", source.ErrInvalid, err)
	}
	return ci.Event{
		Type: "pr", Action: "opened", Source: c.Name, Repo: c.Repo, DefaultBranch: branch, Payload: d.Body, Number: p.Number, Fork: p.Fork,
		Ref: fmt.Sprintf("refs/pull/%d/head", p.Number), SHA: p.Head, BaseSHA: p.Base, Before: p.Base, Branch: p.Branch,
		SourceBranch: p.Branch, TargetBranch: p.Into,
	}, nil
}

// Intake is the Fake's, with the limit of forges.
func (f *Forge) Intake() source.Intake {
	in := f.Fake.Intake()
	in.MaxBody, in.Secret = 25<<20, true
	return in
}

// Verify accepts the present webhook secret and the former one.
func (f *Forge) Verify(r source.Request) error {
	c, _ := f.settings()
	for _, key := range []string{source.SecretWebhook, source.SecretWebhookOld} {
		if s := c.Secrets[key]; s != "" && source.VerifySignature(s, r.Header.Get(source.SignatureHeader), r.Body) {
			return nil
		}
	}
	return source.ErrUnauthorized
}
