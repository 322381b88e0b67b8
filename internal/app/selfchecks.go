package app

import (
	"context"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/diagnose"
	"github.com/kici-go/kici/internal/service"
)

// selfChecks are what the server asks itself (OBS-6).
func (s *Server) selfChecks(reads *read.Reads) []diagnose.Check {
	all := read.Scope{OrgID: access.DefaultOrg}
	return []diagnose.Check{
		{Name: "database", Ask: s.checkDatabase},
		{Name: "leader", Ask: s.checkLeader},
		{Name: "notifications", Ask: s.checkListener},
		{Name: "disk", Ask: s.checkDisk},
		{Name: "agents", Ask: func(ctx context.Context) diagnose.Finding { return checkAgents(ctx, reads, all) }},
		{Name: "scalers", Rows: func(ctx context.Context) []diagnose.Row { return s.checkScalers(ctx, reads, all) }},
		{Name: "configuration", Ask: s.checkConfig},
	}
}

// slowPing is what an answer of the database may take before it is worth a word.
const slowPing = 250 * time.Millisecond

func (s *Server) checkDatabase(ctx context.Context) diagnose.Finding {
	began := time.Now()
	if err := s.store.Ping(ctx); err != nil {
		return diagnose.Failed("look at the database and the way to it", "%s does not answer: %v", s.store.Dialect(), err)
	}
	took := time.Since(began)
	if took > slowPing {
		return diagnose.Warned("look at the load of the database and of this machine", "%s answers in %s", s.store.Dialect(), took.Round(time.Millisecond))
	}
	return diagnose.Passed("%s answers", s.store.Dialect())
}

// checkLeader looks whether somebody leads: without a leader nothing is placed. On SQLite that is this server, always.
func (s *Server) checkLeader(ctx context.Context) diagnose.Finding {
	if term, leading := s.leader.Term(); leading {
		return diagnose.Passed("this server leads (term %d)", term)
	}
	lease, err := s.store.Read().LeaderLease(ctx)
	switch {
	case err != nil:
		return diagnose.Warned("it should pass within a minute; else look at the log", "nobody leads, so no job is placed: %v", err)
	case lease.ExpiresAt < s.env.NowMs():
		return diagnose.Warned("it should pass within a minute; else look at the log", "the lease of %s has run out and nobody has taken it", lease.Holder)
	}
	return diagnose.Passed("%s leads", lease.Holder)
}

func (s *Server) checkListener(context.Context) diagnose.Finding {
	if !s.store.Stats().Listening {
		return diagnose.Warned("look at the database's connections; loops still tick, only later", "notifications of the database do not arrive")
	}
	return diagnose.Passed("notifications arrive")
}

func (s *Server) checkDisk(context.Context) diagnose.Finding {
	free, err := service.FreeDisk(s.data.Path())
	if err != nil {
		return diagnose.Skipped("the free space cannot be measured: %v", err)
	}
	return judgeDisk(s.data.Path(), free, diskLimits{s.tuning.DiskFail, s.tuning.DiskWarn})
}

func checkAgents(ctx context.Context, reads *read.Reads, all read.Scope) diagnose.Finding {
	list, err := reads.Agents(ctx, all, read.AgentFilter{Limit: 500})
	if err != nil {
		return diagnose.Failed("look at the database", "%v", err)
	}
	connected := 0
	for _, a := range list.Agents {
		if a.Connected {
			connected++
		}
	}
	scalers, err := reads.Scalers(ctx, all)
	if err == nil && connected == 0 && len(scalers.Scalers) == 0 {
		return diagnose.Warned("add a scaler to scalers.yaml, or start an agent", "no agent is connected and no scaler starts any")
	}
	return diagnose.Passed("%d connected", connected)
}

// checkConfig reads scalers.yaml as the next start would.
func (s *Server) checkConfig(context.Context) diagnose.Finding {
	return judgeScalers(scalerPath(s.o.ScalerConfig, s.data.Path()), s.o.ScalerDir)
}
