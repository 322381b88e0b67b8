package web

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
)

// How many reasons of a job and holders of a scaler a page names.
const (
	maxReasons = 3
	maxHolders = 6
)

// leadOf splits a sentence that begins with the name of its scaler or agent, which is set off.
func leadOf(r client.Reason) (name, rest string) {
	for _, n := range []string{r.Scaler, r.Agent} {
		if rest, ok := strings.CutPrefix(r.Text, n); ok && n != "" && rest != "" && strings.ContainsAny(rest[:1], " :,") {
			return n, rest
		}
	}
	return "", ""
}

// soon is the hour of a deadline that is near, "" of any other.
func soon(t *client.Time) string {
	if t == nil || time.Until(t.Time) > time.Hour {
		return ""
	}
	return t.Format("15:04:05 UTC")
}

// size is how much of a machine a job asks for.
func size(cpuMilli, memBytes int64) string {
	var parts []string
	if cpuMilli > 0 {
		parts = append(parts, cpus(cpuMilli)+" cpu")
	}
	if memBytes > 0 {
		parts = append(parts, gib(memBytes)+" GiB")
	}
	return strings.Join(parts, " ")
}

type meterPart struct{ Class, X, W string }

// busyOf is how many agents of a scaler are at work or start for some: neither warm nor ending.
func busyOf(s client.Scaler) int { return max(0, s.ActiveCount-s.WarmCount-s.EndingCount) }

// meter is the bar of a scaler: used, warm and ending against its cap.
func meter(s client.Scaler) []meterPart {
	if s.MaxAgents <= 0 {
		return nil
	}
	var out []meterPart
	x := 0.0
	for _, p := range []struct {
		class string
		n     int
	}{{"used", busyOf(s)}, {"warm", s.WarmCount}, {"ending", s.EndingCount}} {
		w := min(100-x, 100*float64(p.n)/float64(s.MaxAgents))
		if w > 0 {
			out = append(out, meterPart{p.class, fmt.Sprintf("%.2f", x), fmt.Sprintf("%.2f", w)})
			x += w
		}
	}
	return out
}

func capText(s client.Scaler) string {
	t := fmt.Sprint(busyOf(s))
	if s.WarmCount > 0 {
		t += fmt.Sprintf(" + %d warm", s.WarmCount)
	}
	if s.EndingCount > 0 {
		t += fmt.Sprintf(" + %d ending", s.EndingCount)
	}
	if s.MaxAgents <= 0 {
		return t
	}
	return fmt.Sprintf("%s of %d", t, s.MaxAgents)
}

// freeText is what a scaler could still start, in words.
func freeText(s client.Scaler) string {
	var parts []string
	if s.StartingCount > 0 {
		parts = append(parts, fmt.Sprintf("%d starting", s.StartingCount))
	}
	switch {
	case scalerClass(s) == "failed" || scalerClass(s) == "cancelled":
		parts = append(parts, "none free now")
	case s.MaxAgents > 0:
		parts = append(parts, fmt.Sprintf("%d free", max(0, s.MaxAgents-int64(s.ActiveCount))))
	}
	return strings.Join(parts, ", ")
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
	case "retiring", "draining":
		return "cancelled"
	}
	return "failed"
}

// scalerID names a scaler on a page; it is part of addresses.
func scalerID(s client.Scaler) string {
	return "scaler-" + url.PathEscape(s.NodeName+"-"+s.Name)
}

func scalersHeadline(all []client.Scaler) string {
	full := 0
	for _, s := range all {
		switch scalerClass(s) {
		case "failed":
			return text(s.Name) + " is " + s.State
		case "running":
			full++
		}
	}
	switch {
	case len(all) == 0:
		return "No scaler is configured"
	case full == len(all):
		return "Every scaler is full"
	case full > 0:
		return fmt.Sprintf("%d of %s full", full, count(len(all), "scaler is", "scalers are"))
	case len(all) == 1:
		return text(all[0].Name) + " is ready"
	}
	return "Every scaler is ready"
}

// scalerSummary says below the queue's heading what stands against it.
func scalerSummary(all []client.Scaler) (out []string) {
	refuse, full, leaving := 0, 0, 0
	for _, s := range all {
		switch scalerClass(s) {
		case "failed":
			refuse++
		case "running":
			full++
		case "cancelled":
			leaving++
		}
	}
	if refuse > 0 {
		out = append(out, count(refuse, "scaler refuses work", "scalers refuse work"))
	}
	if full > 0 {
		out = append(out, count(full, "scaler is full", "scalers are full"))
	}
	if leaving > 0 {
		out = append(out, count(leaving, "scaler takes no new work", "scalers take no new work"))
	}
	return append(out, capacity(all)...)
}

// capacity is how many agents all scalers have and could have.
func capacity(all []client.Scaler) (out []string) {
	busy, warm, free := 0, 0, int64(0)
	for _, s := range all {
		busy, warm = busy+busyOf(s), warm+s.WarmCount
		if scalerClass(s) == "success" {
			free += max(0, s.MaxAgents-int64(s.ActiveCount))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d used", busy), fmt.Sprintf("%d warm", warm), fmt.Sprintf("%d free", free)}
}

func (f agentFilter) query() string {
	q := url.Values{}
	if f.All {
		q.Set("all", "1")
	}
	if f.Scaler != "" {
		q.Set("scaler", f.Scaler)
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	return q.Encode()
}

func (v agentsView) headline() string {
	live, busy := 0, 0
	for _, a := range v.Agents {
		if a.EndedAt == nil {
			live++
			if a.JobID != "" {
				busy++
			}
		}
	}
	switch {
	case live == 0:
		return "No agent is alive"
	case v.Next != "" || v.Filter.Cursor != "":
		return fmt.Sprintf("%d of the %d agents on this page are at work", busy, len(v.Agents))
	}
	return fmt.Sprintf("%s alive, %d at work", count(live, "agent is", "agents are"), busy)
}

func agentOrigin(a client.Agent) string {
	if a.Scaler == "" {
		return "static · " + text(a.Host)
	}
	return text(a.Scaler) + " · " + text(a.NodeName)
}

func agentWord(a client.Agent) string {
	switch {
	case a.EndedAt != nil && a.GoneReason != "":
		return plainWord(a.GoneReason)
	case a.State == "online" && !a.Connected:
		return "link lost"
	case a.Draining && a.EndedAt == nil:
		return "draining"
	}
	return a.State
}

func agentClass(a client.Agent) string {
	switch {
	case a.Error != "":
		return "failed"
	case a.State == "gone" || a.State == "ending":
		return "cancelled"
	case a.State == "online" && !a.Connected, a.State == "draining", a.Draining:
		return "running"
	case a.State == "online":
		return "success"
	}
	return "queued"
}

// agentSince is when an agent entered its state.
func agentSince(a client.Agent) client.Time {
	if a.EndedAt != nil {
		return *a.EndedAt
	}
	return a.StateAt
}

// idleWord says what an agent without a job is there for.
func idleWord(a client.Agent) string {
	switch {
	case a.EndedAt != nil || a.State == "ending":
		return ""
	case a.State != "online" && a.State != "draining":
		return "starts"
	case a.Scaler == "":
		return "idle"
	case a.JobsDone == 0:
		return "warm"
	}
	return ""
}

// plainWord is a stored word as people write it.
func plainWord(s string) string { return strings.ReplaceAll(s, "_", " ") }

// ownLabels leaves out those that kici itself gives to every agent: they say nothing that the other columns do not.
func ownLabels(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(l string) bool { return strings.HasPrefix(l, "kici:") })
}
