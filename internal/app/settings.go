package app

import (
	"context"

	"github.com/kici-go/kici/internal/setting"
)

// openSettings reads the settings that hold. A table that cannot be read stops no start (XC-110).
func (s *Server) openSettings(ctx context.Context) (err error) {
	s.settings, err = setting.New(setting.Deps{Store: s.store, Env: s.env, Log: s.log, Getenv: s.o.Getenv, Base: s.tuning.defaults})
	if err != nil {
		return err
	}
	if err := s.settings.Load(ctx); err != nil {
		s.log.Error("settings cannot be read; defaults hold, and what guards something is off", "component", "app", "err", err)
	}
	return nil
}

// defaults are what holds where nobody has set anything: a server that was built with other values than the usual ones
// (tests, the demo) has them as its defaults.
func (t *Tuning) defaults(c *setting.Cluster, o *setting.Org) {
	c.QueueMaxDepth, c.EventTTL = t.Run.QueueMaxDepth, t.Run.EventTTL
	c.UnroutableGrace, c.ConcurrencyWait = t.Dispatch.UnroutableGrace, t.Run.ConcurrencyWait
	c.AgentTokenTTL, c.ProvisionBackoffBase, c.ProvisionBackoffMax = t.Scaler.TokenTTL, t.Scaler.BackoffBase, t.Scaler.BackoffMax
	if t.Ingress.Lease > 0 {
		c.OverflowClaim = t.Ingress.Lease
	}
	if t.Ingress.MaxForgeBytes > 0 {
		c.MaxForgeBytes = t.Ingress.MaxForgeBytes
	}
	o.QueueTimeout, o.DispatchAck, o.SpawnTimeout = t.Run.QueueTimeout, t.Dispatch.AckTimeout, t.Scaler.SpawnTimeout
}
