package sim

import (
	"testing"

	"github.com/kici-go/kici/internal/placement"
)

func TestFalseReasons(t *testing.T) {
	f := queueFacts{
		now:      1000,
		nodes:    map[string]nodeFacts{"n": {live: true, most: 3}, "drains": {live: true, draining: true, most: 3}, "lost": {most: 3}},
		scalers:  map[string]scalerFacts{"n small": {most: 2, ready: true, sets: [][]string{{"linux"}}}, "n big": {most: 2, ready: true, sets: [][]string{{"gpu", "linux"}}}},
		backoffs: map[string]int64{"n big": 2000, "n small": 900},
		agents: []agentFacts{
			{id: "a", node: "n", scaler: "small", state: "online", linked: true, job: "j1", holder: "shop #1"},
			{id: "b", node: "n", scaler: "small", state: "booting", bound: "j2", holder: "shop #2"},
			{id: "s", state: "online", linked: true, job: "j3", holder: "shop #3", labels: []string{"metal"}},
			{id: "idle", state: "online", linked: true, labels: []string{"metal"}},
		},
		shapes: map[string]shapeFacts{"linux": {labels: []string{"linux"}, booting: []string{"j2"}}, "metal": {labels: []string{"metal"}}, "odd": {labels: []string{"odd"}}},
	}
	small, big := placement.Reason{NodeID: "n", Scaler: "small"}, placement.Reason{NodeID: "n", Scaler: "big"}
	say := func(r placement.Reason, kind placement.ReasonKind, text string) placement.Reason {
		r.Kind, r.Text = kind, text
		return r
	}
	with := func(r placement.Reason, change func(*placement.Reason)) placement.Reason { change(&r); return r }
	agent := func(id string, kind placement.ReasonKind) placement.Reason {
		return placement.Reason{Agent: id, Kind: kind, Text: "x"}
	}
	held := func(who string) func(*placement.Reason) {
		return func(r *placement.Reason) { r.Holders = []string{who} }
	}
	for name, tc := range map[string]struct {
		shape string
		r     placement.Reason
		wrong bool
	}{
		"full":                    {"linux", with(say(small, placement.ReasonCap, "small is full: 2 of 2 agents"), held("shop #1")), false},
		"held by nobody":          {"linux", with(say(small, placement.ReasonCap, "small is full: 2 of 2 agents"), held("shop #9")), true},
		"another number":          {"linux", say(small, placement.ReasonCap, "small is full: 3 of 2 agents"), true},
		"not full":                {"linux", say(big, placement.ReasonCap, "big is full: 2 of 2 agents"), true},
		"node not full":           {"linux", with(say(small, placement.ReasonCap, "n is full: 3 of 3 agents"), func(r *placement.Reason) { r.Limit = "globalMaxAgents" }), true},
		"backs off":               {"linux", with(say(big, placement.ReasonBackoff, "x"), func(r *placement.Reason) { r.Until = 2000 }), false},
		"backs off longer":        {"linux", with(say(big, placement.ReasonBackoff, "x"), func(r *placement.Reason) { r.Until = 2001 }), true},
		"has backed off":          {"linux", with(say(small, placement.ReasonBackoff, "x"), func(r *placement.Reason) { r.Until = 900 }), true},
		"drains":                  {"linux", placement.Reason{NodeID: "drains", Kind: placement.ReasonDraining}, false},
		"does not drain":          {"linux", say(small, placement.ReasonDraining, "x"), true},
		"lost":                    {"linux", placement.Reason{NodeID: "lost", Kind: placement.ReasonNodeLost}, false},
		"not lost":                {"linux", say(small, placement.ReasonNodeLost, "x"), true},
		"stays":                   {"linux", say(small, placement.ReasonRetiring, "x"), true},
		"is ready":                {"linux", say(small, placement.ReasonNotReady, "x"), true},
		"busy":                    {"metal", with(agent("s", placement.ReasonBusy), held("shop #3")), false},
		"busy with another":       {"metal", with(agent("s", placement.ReasonBusy), held("shop #4")), true},
		"not busy":                {"metal", agent("idle", placement.ReasonBusy), true},
		"not there":               {"metal", agent("nobody", placement.ReasonBusy), true},
		"linked":                  {"metal", agent("s", placement.ReasonDisconnected), true},
		"one of others":           {"linux", placement.Reason{Kind: placement.ReasonOtherJobs, Text: "1 single-use agent belongs to other jobs"}, false},
		"two of others":           {"linux", placement.Reason{Kind: placement.ReasonOtherJobs, Text: "2 single-use agents belong to other jobs"}, true},
		"on its way":              {"linux", agent("b", placement.ReasonBooting), false},
		"another is":              {"linux", agent("a", placement.ReasonBooting), true},
		"none is":                 {"metal", agent("", placement.ReasonBooting), true},
		"next for ever":           {"linux", say(small, placement.ReasonBooting, "small has room; these jobs are next"), true},
		"lacks a label":           {"metal", with(say(small, placement.ReasonNoLabels, "x"), func(r *placement.Reason) { r.Missing = []string{"metal"} }), false},
		"lacks what is not asked": {"metal", with(say(small, placement.ReasonNoLabels, "x"), func(r *placement.Reason) { r.Missing = []string{"gold"} }), true},
		"lacks nothing":           {"linux", with(say(small, placement.ReasonNoLabels, "x"), func(r *placement.Reason) { r.Missing = []string{"linux"} }), true},
		"offered by nobody":       {"odd", placement.Reason{Kind: placement.ReasonNoOffer}, false},
		"offered by an agent":     {"metal", placement.Reason{Kind: placement.ReasonNoOffer}, true},
		"offered by a scaler":     {"linux", placement.Reason{Kind: placement.ReasonNoOffer}, true},
		"nothing at all":          {"linux", placement.Reason{Kind: placement.ReasonNothing}, true},
		"no such scaler":          {"linux", placement.Reason{NodeID: "n", Scaler: "gone", Kind: placement.ReasonCap}, true},
		"a new kind":              {"linux", placement.Reason{Kind: "mood"}, true},
	} {
		if wrong, _ := falseReason(f, tc.shape, tc.r); (wrong != "") != tc.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}
