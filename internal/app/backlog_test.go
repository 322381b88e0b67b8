package app

import (
	"bytes"
	"context"
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
	if len(got) != 2 || got["linux"] != 120 || got["gpu"] != 60 {
		t.Errorf("%v", got)
	}
}
