package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// A long queue is said once, and counted by label.
func TestBacklog(t *testing.T) {
	w := readtest.New(t, storetest.SQLite(t))
	var log bytes.Buffer
	s := &Server{store: w.Store, metrics: obs.NewMetrics(), log: slog.New(slog.NewTextHandler(&log, nil))}
	var jobs []lock.Job
	for i := range 60 {
		j := readtest.Job("j" + strings.Repeat("x", i))
		j.RunsOn.Labels = []string{"linux", "gpu"}
		jobs = append(jobs, j)
	}
	w.Run(readtest.NewRun{Jobs: jobs})
	s.measureBacklog(context.Background())
	if log.Len() > 0 {
		t.Fatal(log.String())
	}
	for i := range jobs {
		jobs[i].RunsOn.Labels = []string{"linux"}
	}
	w.Run(readtest.NewRun{Jobs: jobs})
	s.measureBacklog(context.Background())
	s.measureBacklog(context.Background())
	if strings.Count(log.String(), "many jobs wait") != 1 {
		t.Fatal(log.String())
	}
	got := labelDepths(t, s)
	if len(got) != 2 || got["linux"] != 120 || got["gpu"] != 60 {
		t.Errorf("%v", got)
	}
	for run := range 4 { // authors choose labels: those beyond the bound are counted together (OBS-17)
		for i := range jobs {
			jobs[i].RunsOn.Labels = []string{fmt.Sprintf("own-%d-%d", run, i)}
		}
		w.Run(readtest.NewRun{Jobs: jobs})
	}
	s.measureBacklog(context.Background())
	if got := labelDepths(t, s); len(got) != maxBacklogLabels+1 || got["linux"] != 120 || got["other"] != 2+4*60-maxBacklogLabels {
		t.Errorf("%d labels, other %v", len(got), got["other"])
	}
}

func labelDepths(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	families, err := s.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), "dispatch_queue_depth_by_label") {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return got
}
