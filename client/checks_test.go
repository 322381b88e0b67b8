package client

import "testing"

func TestChecksProblem(t *testing.T) {
	for want, c := range map[string]*Checks{
		"": {Posted: 3, Pending: true},
		"3 not posted: token refused; kici source set-token shop": {Failed: 3, Posted: 1, Source: "shop", Reason: "denied", Error: "token refused"},
		"2 not posted: no answer; tried again":                    {Waiting: 2, Source: "shop", Reason: "unreachable", Error: "no answer"},
		"2 not posted: no such commit":                            {Failed: 1, Waiting: 1, Source: "shop", Reason: "not_found", Error: "no such commit"},
	} {
		if got := c.Problem(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if (*Checks)(nil).Problem() != "" {
		t.Error("a problem without statuses")
	}
}
