package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/client"
)

type segment struct{ Class, X, W string }

// meter is the bar of a scaler: used, warm and ending against its cap.
func meter(s client.Scaler) []segment {
	if s.MaxAgents <= 0 {
		return nil
	}
	var out []segment
	x := 0.0
	for _, p := range []struct {
		class string
		n     int
	}{{"used", s.ActiveCount}, {"warm", s.WarmCount}, {"ending", s.EndingCount}} {
		w := min(100-x, 100*float64(p.n)/float64(s.MaxAgents))
		if w > 0 {
			out = append(out, segment{p.class, fmt.Sprintf("%.2f", x), fmt.Sprintf("%.2f", w)})
			x += w
		}
	}
	return out
}

func capText(s client.Scaler) string {
	t := fmt.Sprint(s.ActiveCount)
	if s.WarmCount > 0 {
		t += fmt.Sprintf(" + %d warm", s.WarmCount)
	}
	if s.EndingCount > 0 {
		t += fmt.Sprintf(" + %d ending", s.EndingCount)
	}
	return fmt.Sprintf("%s of %d", t, s.MaxAgents)
}

func cpuText(s client.Scaler) string {
	if s.CapCPUMilli == 0 && s.UsedCPUMilli == 0 {
		return ""
	}
	if s.CapCPUMilli == 0 {
		return cpus(s.UsedCPUMilli)
	}
	return cpus(s.UsedCPUMilli) + " / " + cpus(s.CapCPUMilli)
}

func memText(s client.Scaler) string {
	if s.CapMemBytes == 0 && s.UsedMemBytes == 0 {
		return ""
	}
	if s.CapMemBytes == 0 {
		return gib(s.UsedMemBytes) + " GiB"
	}
	return gib(s.UsedMemBytes) + " / " + gib(s.CapMemBytes) + " GiB"
}

func scalerClass(s client.Scaler) string {
	switch s.State {
	case "ready":
		return "success"
	case "full":
		return "running"
	case "retiring":
		return "cancelled"
	}
	return "failed"
}

func scalersHeadline(all []client.Scaler) string {
	bad := slices.IndexFunc(all, func(s client.Scaler) bool { return scalerClass(s) == "failed" })
	switch {
	case len(all) == 0:
		return "No scaler is configured"
	case bad >= 0:
		return all[bad].Name + " is " + all[bad].State
	}
	return "Every scaler is ready"
}

func agentsHeadline(all []client.Agent) string {
	live, busy := 0, 0
	for _, a := range all {
		if a.EndedAt == nil {
			live++
			if a.JobID != "" {
				busy++
			}
		}
	}
	if live == 0 {
		return "No agent is alive"
	}
	return fmt.Sprintf("%s alive, %d at work", count(live, "agent is", "agents are"), busy)
}

func (v agentsView) query() string {
	if v.All {
		return "all=1"
	}
	return ""
}

func deliveriesHeadline(v deliveriesView) string {
	bad := 0
	for _, d := range v.Deliveries {
		if deliveryClass(d) == "failed" {
			bad++
		}
	}
	switch n := len(v.Deliveries); {
	case n == 0:
		return "Deliveries"
	case !v.Live:
		return "Older deliveries"
	case bad > 0:
		return fmt.Sprintf("%d of the last %s failed", bad, count(n, "delivery", "deliveries"))
	case n == 1:
		return "The only delivery went well"
	default:
		return fmt.Sprintf("The last %d deliveries went well", n)
	}
}

// plainWord is a stored status as words.
func plainWord(s string) string { return strings.ReplaceAll(s, "_", " ") }

func agentOrigin(a client.Agent) string {
	if a.Scaler == "" {
		return "static · " + text(a.Host)
	}
	return text(a.Scaler) + " · " + text(a.NodeName)
}

func agentWord(a client.Agent) string {
	if a.EndedAt != nil && a.GoneReason != "" {
		return a.GoneReason
	}
	if a.State == "online" && !a.Connected {
		return "link lost"
	}
	return a.State
}

func agentClass(a client.Agent) string {
	switch {
	case a.Error != "":
		return "failed"
	case a.State == "online" && a.Connected:
		return "success"
	case a.State == "gone" || a.State == "ending":
		return "cancelled"
	case a.State == "online":
		return "running"
	}
	return "queued"
}

func deliveryClass(d client.Delivery) string {
	switch d.Status {
	case "processed":
		return "success"
	case "failed", "lockfile_corrupt":
		return "failed"
	case "received", "processing":
		return "running"
	}
	return "skipped"
}

func deliveryLine(d client.Delivery) string {
	switch {
	case d.Error != "":
		return firstLine(d.Error)
	case d.Matched > 0:
		return "started " + count(int(d.Matched), "workflow", "workflows")
	case d.Status == "processed":
		return "no workflow matched"
	}
	return ""
}

func deliveryHeadline(d client.Delivery) string {
	if line := deliveryLine(d); line != "" {
		return strings.ToUpper(line[:1]) + text(line[1:])
	}
	return "Delivery"
}

// workflowDecision is why one workflow did or did not start.
type workflowDecision struct {
	Workflow string `json:"workflow"`
	Matched  bool   `json:"matched"`
	Degraded bool   `json:"degraded"`
	Checks   []struct {
		Check   string `json:"check"`
		Pattern string `json:"pattern"`
		Value   string `json:"value"`
		Passed  bool   `json:"passed"`
		Reason  string `json:"reason"`
	} `json:"checks"`
}

func (w workflowDecision) verdict() string {
	if w.Matched {
		return "started"
	}
	return "did not match"
}

func decisionsOf(raw json.RawMessage) []workflowDecision {
	var out []workflowDecision
	_ = json.Unmarshal(raw, &out)
	return out
}

func passClass(ok bool) string {
	if ok {
		return "success"
	}
	return "skipped"
}

func passWord(ok bool) string {
	if ok {
		return "passed"
	}
	return "not passed"
}

// ownLabels leaves out those that kici itself gives to every agent: they say nothing that the other columns do not.
func ownLabels(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(l string) bool { return strings.HasPrefix(l, "kici:") })
}
