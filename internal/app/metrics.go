package app

import (
	"context"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
)

// gaugesEvery is how old a gauge may be that needs a query: a scrape asks nobody (OBS-18).
const gaugesEvery = 10 * time.Second

var openStatuses = []ci.JobStatus{ci.JobPending, ci.JobQueued, ci.JobRunning, ci.JobRecovering, ci.JobCancelling, ci.JobHeld, ci.JobWaiting}

// gauges refreshes the metrics that need a query. While the store is away they keep their last values.
func (s *Server) gauges(ctx context.Context) error {
	ticker := time.NewTicker(gaugesEvery)
	defer ticker.Stop()
	for {
		s.refreshGauges(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// listenChannel is the one channel of the database's notifications, countedDeliveries how far those that wait are counted.
const (
	listenChannel     = "kici"
	countedDeliveries = 100_000
)

func (s *Server) refreshGauges(ctx context.Context) {
	term, leading := s.leader.Term()
	s.metrics.LeaseTerm.Set(float64(term))
	s.metrics.IsLeader.Set(0)
	if leading {
		s.metrics.IsLeader.Set(1)
	}
	s.metrics.ConfigVersion.Set(float64(s.settings.Version()))
	s.metrics.Listening.WithLabelValues(listenChannel).Set(0)
	if s.store.Stats().Listening {
		s.metrics.Listening.WithLabelValues(listenChannel).Set(1)
	}
	if rows, err := s.store.Read().CountOpenDeliveriesByOrg(ctx, countedDeliveries); err == nil {
		waiting := int64(0)
		for _, r := range rows {
			waiting += r.Waiting
		}
		s.metrics.IngestWaiting.Set(float64(waiting))
	}
	s.lookAtDisk()
	if self, err := s.store.Read().ClusterInstance(ctx, s.data.InstanceID()); err == nil {
		s.metrics.Draining.Set(0)
		if self.Draining {
			s.metrics.Draining.Set(1)
		}
	}
	s.measureBacklog(ctx)
	rows, err := s.store.Read().FleetQueueDepth(ctx)
	if err != nil {
		return
	}
	depth := map[string]int64{}
	for _, r := range rows {
		depth[r.Status] = r.Jobs
	}
	for _, status := range openStatuses {
		s.metrics.QueueDepth.WithLabelValues(string(status)).Set(float64(depth[string(status)]))
	}
}

// runMetrics counts what becomes of runs.
func (s *Server) runMetrics() run.Observer {
	return run.Observer{
		RunEnded: func(status ci.RunStatus, took time.Duration) {
			s.metrics.Executions.WithLabelValues(string(status)).Inc()
			s.metrics.ExecutionDuration.Observe(took.Seconds())
		},
		Refused: func(event string) {
			if event == "start" || event == "step" {
				event = string(ci.JobRunning)
			}
			s.metrics.RefusedStatus.WithLabelValues(event).Inc()
		},
	}
}
