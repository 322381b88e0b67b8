package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Resolve returns the workflows of a commit, for whoever needs them again.
func (s *Service) Resolve(ctx context.Context, orgID, routingKey, sha string) (lock.File, error) {
	src, err := s.sourceFor(ctx, orgID, routingKey)
	if err != nil {
		return lock.File{}, err
	}
	at, err := s.workflows(ctx, routingKey, sha, src)
	switch {
	case errors.Is(err, source.ErrNotFound):
		return lock.File{}, fmt.Errorf("%w: %s", ErrNoCommit, sha)
	case err != nil:
		return lock.File{}, err
	case at.result == workflow.Missing:
		return lock.File{}, invalid("commit %s has no workflows", sha)
	case at.result != workflow.OK:
		return lock.File{}, &RequestError{Message: unusable(at)}
	}
	return *at.file, nil
}

// TriggerRequest asks that a ref is treated as just pushed.
type TriggerRequest struct {
	OrgID, Source string // name, id or routing key
	Ref           string // "" is the default branch
	By            string
}

// Trigger makes a push delivery for the commit that ref names now, and returns its delivery id when it is durable. It goes the
// way of every other delivery.
func (s *Service) Trigger(ctx context.Context, t TriggerRequest) (deliveryID string, err error) {
	e, err := s.get(ctx, t.OrgID, t.Source)
	if err != nil {
		return "", err
	}
	src, err := e.usable()
	if err != nil {
		return "", err
	}
	if !src.HasRepo() {
		return "", invalid("source %s has no repository; send it a webhook instead", e.row.Name)
	}
	ev := ci.Event{Source: e.row.Name}
	commit, err := s.resolveRef(ctx, src, t.Ref, &ev)
	if err != nil {
		return "", err
	}
	if ev.Ref == "" {
		return "", invalid("%q is a commit: only a branch or a tag can be pushed", short(t.Ref, 200))
	}
	if full, err := s.admission.full(ctx, s.d.Store.Read(), t.OrgID, s.d.Env.Now()); err != nil {
		return "", err
	} else if full {
		s.countShed(capFull, "too many deliveries are waiting")
		return "", ErrShed
	}
	body, err := json.Marshal(source.Payload{Ref: ev.Ref, After: commit.SHA, Pusher: source.PayloadPusher{Name: t.By}})
	if err != nil {
		return "", err
	}
	acc, err := s.accept(ctx, e.row, source.Received{Delivery: source.Delivery{
		Event: "push", Body: body,
		Headers: map[string]string{"content-type": "application/json", "x-event-type": "push", source.TriggerHeader: source.TriggerAPI},
	}}, s.known())
	return acc.DeliveryID, err
}
