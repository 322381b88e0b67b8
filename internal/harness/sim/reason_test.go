package sim

import "testing"

func TestUntrueReasons(t *testing.T) {
	say := func(status, headline string, reasons ...whyReason) whyAnswer {
		return whyAnswer{Status: status, Headline: headline, Reasons: reasons}
	}
	need := func(id string) whyReason { return whyReason{Kind: "need", Job: id, Text: "needs it"} }
	group := whyReason{Kind: "concurrency", Text: "waits for the group"}
	agent := func(kind, id string) whyReason { return whyReason{Kind: kind, Agent: id, Text: "an agent"} }
	for name, tc := range map[string]struct {
		f              jobFacts
		w              whyAnswer
		wrong, passing bool
	}{
		"silent":                       {jobFacts{Status: "queued"}, say("queued", ""), true, false},
		"a reason without a text":      {jobFacts{Status: "queued"}, say("queued", "x", whyReason{Kind: "cap"}), true, false},
		"another status":               {jobFacts{Status: "queued"}, say("pending", "x"), true, false},
		"needs":                        {jobFacts{Status: "pending", Needs: []string{"a", "b"}}, say("pending", "waits", need("b"), need("a")), false, false},
		"needs one that has ended":     {jobFacts{Status: "pending", Needs: []string{"a"}}, say("pending", "waits", need("b"), need("a")), true, false},
		"needs another":                {jobFacts{Status: "pending", Needs: []string{"a", "b"}}, say("pending", "waits", need("a")), true, false},
		"about to be queued":           {jobFacts{Status: "pending"}, say("pending", "about to be queued"), true, true},
		"run in a group":               {jobFacts{Status: "pending", Run: place{State: "queued", Others: 1}}, say("pending", "waits", group), false, false},
		"run in a group, not said":     {jobFacts{Status: "pending", Run: place{State: "queued", Others: 1}}, say("pending", "waits"), true, false},
		"job in a group":               {jobFacts{Status: "held", Own: place{State: "queued", Others: 2}}, say("held", "waits", group), false, false},
		"job in a group of nobody":     {jobFacts{Status: "held", Own: place{State: "queued"}}, say("held", "waits", group), true, true},
		"held for an approval":         {jobFacts{Status: "held"}, say("held", "waits for an approval", whyReason{Kind: "held", Text: "x"}), true, false},
		"window":                       {jobFacts{Status: "held", Siblings: 1}, say("held", "waits", whyReason{Kind: "max_parallel", Text: "x"}), false, false},
		"window of nobody":             {jobFacts{Status: "held"}, say("held", "waits", whyReason{Kind: "max_parallel", Text: "x"}), true, true},
		"handed over":                  {jobFacts{Status: "queued", Agent: "a"}, say("queued", "x", agent("running", "a")), false, false},
		"handed to another":            {jobFacts{Status: "queued", Agent: "a"}, say("queued", "x", agent("running", "b")), true, false},
		"handed to nobody":             {jobFacts{Status: "queued"}, say("queued", "x", agent("running", "b")), true, false},
		"an agent is on its way":       {jobFacts{Status: "queued", Bound: []string{"a"}}, say("queued", "x", agent("booting", "a")), false, false},
		"an agent is, and is not said": {jobFacts{Status: "queued", Bound: []string{"a"}}, say("queued", "x", agent("cap", "")), true, false},
		"waits for nothing":            {jobFacts{Status: "queued"}, say("queued", "waits for the next placement pass"), true, true},
		"half of what is said":         {jobFacts{Status: "queued", Said: []string{"an agent", "another"}}, say("queued", "x", agent("cap", "")), true, false},
		"labels that nobody has":       {jobFacts{Status: "queued", Nowhere: true}, say("queued", "x", agent("no_offer", "")), false, false},
		"runs":                         {jobFacts{Status: "running", Agent: "a"}, say("running", "x", agent("running", "a")), false, false},
		"runs elsewhere":               {jobFacts{Status: "running", Agent: "a"}, say("running", "x", agent("running", "b")), true, false},
		"is being cancelled":           {jobFacts{Status: "cancelling"}, say("cancelling", "is being cancelled"), false, false},
		"is not said to be cancelled":  {jobFacts{Status: "cancelling"}, say("cancelling", "runs"), true, false},
		"a new status":                 {jobFacts{Status: "odd"}, say("odd", "x"), true, false},
	} {
		wrong, passing := untrue(tc.f, tc.w)
		if (wrong != "") != tc.wrong || passing != tc.passing {
			t.Errorf("%s: %q, passing %v", name, wrong, passing)
		}
	}
}
