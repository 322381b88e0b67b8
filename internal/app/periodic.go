package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store"
)

// openPeriodic builds the server's own periodic jobs (JOB-1).
func (s *Server) openPeriodic() {
	retention := periodic.NewRetention(periodic.RetentionDeps{
		Store: s.store, Env: s.env, Log: s.log, Registry: s.metrics.Registry, Logs: s.logs.DeleteRun,
		Windows: func() periodic.Windows {
			c := s.settings.Cluster()
			return periodic.Windows{Runs: c.RunRetention, Audit: c.AuditRetention, Checks: c.CheckRetention}
		},
	})
	s.periodic = periodic.New(periodic.Deps{
		Store: s.store, Leader: s.leader, InstanceID: s.data.InstanceID(), Env: s.env, Log: s.log, Registry: s.metrics.Registry, Failed: s.auditJob,
		Jobs: []periodic.Job{
			{Name: "cleanup", About: "deletes what has been kept for long enough", Every: time.Hour, Run: s.cleanup(retention)},
			{Name: "token-cleanup", About: "deletes sessions, links and tokens that can never be used again", Every: 10 * time.Minute, Run: s.cleanTokens},
			{Name: "orphan-secret-cleanup", About: "deletes secrets of sources that are gone", Every: time.Hour, Run: s.secrets.CleanOrphans},
			{Name: "unroutable-probe", About: "looks again at jobs that nothing could run", Every: time.Minute, Run: s.probeUnroutable},
		},
	})
}

// cleanTokens counts tokens of agents that are gone with the leaks of agents.
func (s *Server) cleanTokens(ctx context.Context, term int64) ([]string, error) {
	report, err := s.access.CleanTokens(ctx, term)
	n, aerr := s.access.CleanAgentTokens(ctx, term)
	if n > 0 {
		s.leaks.Removed(int(n), backend.Token)
		report = append(report, fmt.Sprintf("deleted %d tokens of agents that are gone", n))
	}
	return report, errors.Join(err, aerr)
}

// cleanup is retention and the end of expired events.
func (s *Server) cleanup(retention *periodic.Retention) func(context.Context, int64) ([]string, error) {
	return func(ctx context.Context, term int64) ([]string, error) {
		report, err := retention.Run(ctx, term)
		for total := 0; ; {
			n, eerr := s.events.Cleanup(ctx, eventsABatch)
			total += n
			if eerr == nil && n > 0 && ctx.Err() == nil {
				continue
			}
			if total > 0 {
				report = append(report, fmt.Sprintf("deleted %d expired events", total))
			}
			return report, errors.Join(err, eerr)
		}
	}
}

const eventsABatch = 500

// auditJob records that a periodic job failed.
func (s *Server) auditJob(job string, err error) {
	s.access.Audit(context.Background(), access.Entry{
		Principal: access.Principal{Kind: access.KindSystem, OrgID: access.DefaultOrg, Label: "kici"}, Action: "scheduled_job.tick", Target: job,
		Source: access.SourceSystem, Outcome: access.Failed, Error: err.Error(),
	})
}

// probeUnroutable wakes the dispatch loop when jobs wait that nothing could run: what changed since may have been missed.
func (s *Server) probeUnroutable(ctx context.Context, _ int64) ([]string, error) {
	n, err := s.store.Read().CountUnroutable(ctx)
	if err != nil || n == 0 {
		return nil, err
	}
	s.store.Publish(store.TopicQueue, "")
	return []string{fmt.Sprintf("%d jobs wait for something that nothing here offers", n)}, nil
}
