package app

import (
	"time"

	"github.com/kici-go/kici/internal/dispatch"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/scaler"
)

// The settings that hold at any moment, as the rooms that use them want them.

func (s *Server) runLimits(org string) run.Limits {
	c, o := s.settings.Cluster(), s.settings.Org(org)
	return run.Limits{
		QueueTimeout: o.QueueTimeout, QueueMaxDepth: c.QueueMaxDepth, ConcurrencyWait: c.ConcurrencyWait, EventTTL: c.EventTTL,
		Sandbox: plan.Sandbox{Capabilities: o.SandboxCapabilities, HostNetwork: o.SandboxHostNetwork},
	}
}

func (s *Server) dispatchLimits() dispatch.Limits {
	c := s.settings.Cluster()
	return dispatch.Limits{UnroutableGrace: c.UnroutableGrace, AckTimeout: s.ackTimeout, LaunchFailures: c.ProvisionMaxFailures}
}

// ackTimeout is how long agents have to acknowledge a job of an organisation (QUE-10).
func (s *Server) ackTimeout(org string) time.Duration { return s.settings.Org(org).DispatchAck }

func (s *Server) eventLimits() event.Limits {
	c, l := s.settings.Cluster(), event.DefaultLimits()
	l.TTL, l.MaxAttempts, l.RatePerMinute = c.EventTTL, c.EventMaxAttempts, int(min(c.EventRatePerMinute, 1<<30))
	return l
}

func (s *Server) intakeLimits() ingress.Limits {
	c := s.settings.Cluster()
	return ingress.Limits{
		ForgeBytes: c.MaxForgeBytes, DedupTTL: c.WebhookDedupTTL, KeptBytes: c.EventLogMaxPayloadBytes, LockBytes: c.LockFileMaxBytes, Claim: c.OverflowClaim,
		Concurrency: func(org string) int { return int(min(s.settings.Org(org).IngestMaxConcurrency, 1<<30)) },
	}
}

func (s *Server) launchLimits(org string) scaler.Limits {
	c := s.settings.Cluster()
	return scaler.Limits{
		SpawnTimeout: s.settings.Org(org).SpawnTimeout, TokenTTL: c.AgentTokenTTL, BackoffBase: c.ProvisionBackoffBase, BackoffMax: c.ProvisionBackoffMax,
	}
}
