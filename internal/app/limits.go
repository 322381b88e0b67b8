package app

import (
	"time"

	"github.com/kici-go/kici/internal/dispatch"
	"github.com/kici-go/kici/internal/run"
)

// The settings that hold at any moment, as the rooms that use them want them.

func (s *Server) runLimits(org string) run.Limits {
	c := s.settings.Cluster()
	return run.Limits{QueueTimeout: s.settings.Org(org).QueueTimeout, QueueMaxDepth: c.QueueMaxDepth, ConcurrencyWait: c.ConcurrencyWait}
}

func (s *Server) dispatchLimits() dispatch.Limits {
	return dispatch.Limits{UnroutableGrace: s.settings.Cluster().UnroutableGrace, AckTimeout: s.ackTimeout}
}

// ackTimeout is how long agents have to acknowledge a job of an organisation (QUE-10).
func (s *Server) ackTimeout(org string) time.Duration { return s.settings.Org(org).DispatchAck }
