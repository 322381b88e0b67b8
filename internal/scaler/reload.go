package scaler

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// ErrReload is a configuration that cannot be taken up; what it wraps says why, for people. Nothing was changed.
var ErrReload = errors.New("the scaler configuration is not taken up")

// Reload reads scalers.yaml again and applies it, all of it or nothing (CF-17). With dryRun it only says what it would do. An error is
// an ErrReload; the plan is there as far as it could be made.
func (n *Node) Reload(ctx context.Context, dryRun bool) (ReloadPlan, []Problem, error) {
	if !dryRun {
		n.metrics.reloads.WithLabelValues("attempted").Inc()
	}
	plan, problems, err := n.reload(ctx, dryRun)
	switch {
	case dryRun:
	case err != nil:
		n.metrics.reloads.WithLabelValues("failed").Inc()
		n.log.Error("scaler configuration not taken up", "err", err)
	default:
		n.metrics.reloads.WithLabelValues("success").Inc()
		n.log.Info("scaler configuration taken up", "file", plan.File, "changes", len(plan.Changes), "changed", !plan.Empty())
	}
	return plan, problems, err
}

func (n *Node) reload(ctx context.Context, dryRun bool) (ReloadPlan, []Problem, error) {
	next, problems := n.d.Load()
	if err := Errors(problems); err != nil {
		return ReloadPlan{}, problems, fmt.Errorf("%w:\n%w", ErrReload, err)
	}
	if err := n.turn.take(ctx); err != nil {
		return ReloadPlan{}, problems, fmt.Errorf("%w: %w", ErrReload, err)
	}
	defer n.turn.give()
	plan := Compare(n.config, next, n.retiring(), n.d.Kinds)
	if text := plan.Refused(); text != "" {
		return plan, problems, fmt.Errorf("%w: %s", ErrReload, text)
	}
	if dryRun || plan.Empty() {
		return plan, problems, nil
	}
	if n.closed || ctx.Err() != nil {
		return plan, problems, fmt.Errorf("%w: the server is stopping", ErrReload)
	}
	built, err := n.build(plan, next)
	if err != nil {
		return plan, problems, fmt.Errorf("%w: %w", ErrReload, err)
	}
	n.commit(plan, next, built)
	n.wake.Signal()
	return plan, problems, nil
}

// retiring are the scalers that only have agents left.
func (n *Node) retiring() (out []ScalerID) {
	for _, id := range n.order {
		if m := n.scalers[id]; m.entry == nil && m.quiet == 0 {
			out = append(out, id)
		}
	}
	return out
}

// build makes what the plan needs and changes nothing. When one of them cannot be made, those made for this reload are closed.
func (n *Node) build(plan ReloadPlan, next *Config) (built map[ScalerID]backend.Backend, err error) {
	built = map[ScalerID]backend.Backend{}
	var added []*managed
	defer func() {
		if err != nil {
			for _, m := range added {
				n.release(m)
			}
		}
	}()
	for _, c := range plan.Changes {
		id := ScalerID{c.Name, c.Type}
		e, named := next.entry(c.Name)
		var b backend.Backend
		switch {
		case c.Name == "", c.Kind == ChangeKept && len(c.Fields) == 0:
			continue
		case c.Kind == ChangeAdded:
			kind, _ := n.kind(c.Type) // the configuration was checked against the kinds
			if b, err = kind.New(e.Backend(), n.d.Host); err == nil {
				added = append(added, &managed{id: id, backend: b})
			}
		case named:
			if old, running := n.config.entry(c.Name); running {
				keepFixed(old, e, c.Fields)
			}
			b, err = reconfigure(n.scalers[id].backend, e.Backend())
		default:
			b, err = reconfigure(n.scalers[id].backend, backend.Entry{Name: c.Name, Retiring: true})
		}
		if err != nil {
			return nil, fmt.Errorf("scaler %s: %w", c.Name, err)
		}
		built[id] = b
	}
	return built, nil
}

func reconfigure(b backend.Backend, e backend.Entry) (backend.Backend, error) {
	r, ok := b.(backend.Reloader)
	if !ok {
		return nil, errors.New("a change of it needs a restart of the server")
	}
	return r.Reload(e)
}

// commit replaces what is managed. Work in progress keeps the entry that it began with.
func (n *Node) commit(plan ReloadPlan, next *Config, built map[ScalerID]backend.Backend) {
	old, had := n.scalers, n.order
	n.scalers, n.order = map[ScalerID]*managed{}, nil
	for i := range next.Scalers {
		e := &next.Scalers[i]
		kind, _ := n.kind(e.Type)
		m := &managed{id: ScalerID{e.Name, e.Type}, entry: e, position: i, offers: e.offers(kind, Platform{runtime.GOOS, runtime.GOARCH})}
		was := old[m.id]
		m.backend = built[m.id]
		switch {
		case m.backend == nil: // nothing of it has changed but perhaps its place
			m.backend, m.prepared, m.notReady, m.retryAt = was.backend, was.prepared, was.notReady, was.retryAt
		case was == nil && n.watchNew != nil:
			n.watchNew(m.backend)
		}
		n.add(m)
	}
	for _, id := range had {
		if n.scalers[id] == nil {
			m := &managed{id: id, backend: old[id].backend, position: len(n.order)}
			if b := built[id]; b != nil {
				n.log.Info("scaler is retiring", "scaler", id.Name, "type", id.Type)
				m.backend = b
			}
			n.add(m)
		}
	}
	n.config, n.ready = next, false
	n.announce()
}
