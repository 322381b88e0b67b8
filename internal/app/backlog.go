package app

import (
	"context"
	"encoding/json"
	"slices"
)

const (
	backlogWarning   = 100 // waiting jobs beyond which a server says so (QUE-16)
	maxBacklogLabels = 200 // labels with a gauge of their own: authors choose them
)

// measureBacklog counts the jobs that wait, by label: one that asks for two labels counts with both (QUE-17). A long queue is said once,
// and again when it has been short in between; dispatch goes on as ever.
func (s *Server) measureBacklog(ctx context.Context) {
	rows, err := s.store.Read().QueuedByLabels(ctx)
	if err != nil {
		return
	}
	waiting, byLabel := int64(0), map[string]int64{}
	for _, r := range rows {
		var labels []string
		_ = json.Unmarshal([]byte(r.Labels), &labels) // our own JSON
		waiting += r.Jobs
		for _, l := range labels {
			byLabel[l] += r.Jobs
		}
	}
	s.metrics.QueueByLabel.Reset()
	names := make([]string, 0, len(byLabel))
	for l := range byLabel {
		names = append(names, l)
	}
	slices.SortFunc(names, func(a, b string) int { return int(byLabel[b] - byLabel[a]) })
	for i, l := range names {
		name := l
		if i >= maxBacklogLabels {
			name = "other" // OBS-17
		}
		s.metrics.QueueByLabel.WithLabelValues("queued", name).Add(float64(byLabel[l]))
	}
	long := waiting > backlogWarning
	if long && !s.backlogged {
		s.log.Warn("many jobs wait for agents", "component", "app", "jobs", waiting, "threshold", backlogWarning)
	}
	s.backlogged = long
}
