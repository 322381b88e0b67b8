package placement

import (
	"fmt"
	"testing"

	"github.com/kici-go/kici/internal/ci"
)

// large is the snapshot of DESIGN §11: jobs of 50 shapes, 1,000 agents, 100 scalers on 10 nodes.
func large(jobs int) Snapshot {
	s := Snapshot{Now: 1_000_000}
	for n := range 10 {
		node := fmt.Sprintf("node-%02d", n)
		s.Nodes = append(s.Nodes, Node{ID: node, Name: node, Live: true, GlobalMaxAgents: 200})
		for i := range 10 {
			name := fmt.Sprintf("scaler-%02d-%d", n, i)
			sc := Scaler{NodeID: node, Name: name, Type: "bare-metal", MaxAgents: 10, Ready: true}
			for l := range 3 {
				declared := ci.NormalizeLabels([]string{"linux", fmt.Sprintf("pool-%d", (n*10+i+l)%60)})
				sc.LabelSets = append(sc.LabelSets, LabelSet{
					Declared: declared, Enriched: ci.NormalizeLabels(append([]string{"kici:os:linux", "kici:arch:x64", "kici:scaler:" + name}, declared...)),
				})
			}
			s.Scalers = append(s.Scalers, sc)
		}
	}
	for i := range 1000 {
		a := Agent{ID: fmt.Sprintf("agent-%04d", i), OrgID: "default", State: ci.AgentOnline, Connected: true, Holder: fmt.Sprintf("acme/site #%d", i%40)}
		if i%2 == 0 {
			sc := &s.Scalers[i/2%100]
			a.NodeID, a.Scaler, a.Type, a.Job, a.BoundJob = sc.NodeID, sc.Name, "bare-metal", fmt.Sprintf("running-%d", i), fmt.Sprintf("running-%d", i)
			a.Labels = sc.LabelSets[0].Enriched
		} else {
			a.Type, a.Labels = "static", ci.NormalizeLabels([]string{"linux", "kici:host:h" + a.ID, fmt.Sprintf("pool-%d", i%70)})
			if i%3 == 0 {
				a.Job = fmt.Sprintf("running-%d", i)
			}
		}
		s.Agents = append(s.Agents, a)
	}
	for k := range 50 {
		sh := Shape{Key: fmt.Sprintf("shape-%02d", k), OrgID: "default", Labels: ci.NormalizeLabels([]string{"linux", fmt.Sprintf("pool-%d", k+15)})}
		for j := range jobs / 50 {
			sh.Jobs = append(sh.Jobs, Job{ID: fmt.Sprintf("job-%02d-%05d", k, j), RunID: "run", QueuedAt: int64(j*50 + k)})
		}
		sh.Total = len(sh.Jobs)
		s.Shapes = append(s.Shapes, sh)
	}
	return s
}

func BenchmarkDecide(b *testing.B) {
	for _, jobs := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			s := large(jobs)
			b.ReportAllocs()
			for b.Loop() {
				d := Decide(s)
				if len(d.Assign) == 0 || len(d.Launch) == 0 {
					b.Fatal("nothing decided")
				}
			}
		})
	}
}
