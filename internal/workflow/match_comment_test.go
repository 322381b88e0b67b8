package workflow

import (
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestMatchComment(t *testing.T) {
	event := func(action, on, text string) ci.Event {
		return ci.Event{Type: TypeComment, Action: action, CommentOn: on, Comment: text}
	}
	for name, tc := range map[string]struct {
		on    string
		event ci.Event
		want  bool
	}{
		"any":                       {`issue_comment`, event("created", CommentOnIssue, "x"), true},
		"short name":                {`comment`, event("created", CommentOnPR, "x"), true},
		"only created by default":   {`issue_comment`, event("edited", CommentOnPR, "x"), false},
		"edited":                    {`{issue_comment: {types: [edited]}}`, event("edited", CommentOnPR, "x"), true},
		"not deleted":               {`{issue_comment: {types: [created, edited]}}`, event("deleted", CommentOnPR, "x"), false},
		"on pr":                     {`{issue_comment: {source: pr}}`, event("created", CommentOnPR, "x"), true},
		"on issue, wants pr":        {`{issue_comment: {source: pr}}`, event("created", CommentOnIssue, "x"), false},
		"exact":                     {`{issue_comment: {body-match: /retest}}`, event("created", CommentOnPR, " /retest\r\n"), true},
		"exact means all of it":     {`{issue_comment: {body-match: /retest}}`, event("created", CommentOnPR, "/retest please"), false},
		"glob":                      {`{issue_comment: {body-match: '/deploy **'}}`, event("created", CommentOnPR, "/deploy a/b\nplease"), true},
		"glob over lines":           {`{issue_comment: {body-match: '**/ok**'}}`, event("created", CommentOnPR, "looks\ngood /ok thanks"), true},
		"regex":                     {`{issue_comment: {body-match: '/^\/retest$/m'}}`, event("created", CommentOnPR, "hm\r\n/retest\r\nthanks"), true},
		"regex with case":           {`{issue_comment: {body-match: '/lgtm/i'}}`, event("created", CommentOnPR, "LGTM"), true},
		"regex says no":             {`{issue_comment: {body-match: '/^lgtm/'}}`, event("created", CommentOnPR, "not lgtm"), false},
		"second of several":         {`{issue_comment: [{body-match: a}, {body-match: b}]}`, event("created", CommentOnPR, "b"), true},
		"another event":             {`{issue_comment: {body-match: a}}`, ci.Event{Type: TypePush, Comment: "a"}, false},
		"what is beyond the bound":  {`{issue_comment: {body-match: '/end$/'}}`, event("created", CommentOnPR, strings.Repeat("x", maxComment)+"end"), false},
		"cut in a character's mids": {`{issue_comment: {body-match: '/^x/'}}`, event("created", CommentOnPR, "x"+strings.Repeat("é", maxComment)), true},
	} {
		f, problems := Compile([]Source{{Path: FilesDir + "/x.yaml", Data: []byte("on: " + tc.on + "\njobs: {a: {runs-on: linux, steps: [{run: x}]}}\n")}})
		if f == nil {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		if d := Match(&f.Workflows[0], tc.event); d.Matched != tc.want || tc.want && d.TriggerType != TypeComment {
			t.Errorf("%s: %+v, want %v", name, d, tc.want)
		}
	}
}

// TestCommentDecision: each filter is a check of its own, so that `kici run show` says which one refused.
func TestCommentDecision(t *testing.T) {
	w := &lock.Workflow{On: []lock.Trigger{{Type: TypeComment, Source: CommentOnPR, BodyMatch: "/retest"}}}
	d := Match(w, ci.Event{Type: TypeComment, Action: "created", CommentOn: CommentOnIssue, Comment: strings.Repeat("no ", 10_000)})
	var got []string
	for _, c := range d.Checks {
		got = append(got, c.Check)
		if len(c.Value) > 600 {
			t.Errorf("%s repeats %d bytes of the comment", c.Check, len(c.Value))
		}
	}
	if want := []string{"event", "types", "source", "body-match"}; d.Matched || !slices.Equal(got, want) {
		t.Errorf("%+v; want the checks %v", d, want)
	}
	if last := d.Checks[3]; last.Passed || last.Reason == "" || last.Pattern != "/retest" {
		t.Errorf("body-match: %+v", last)
	}
}

func TestVerifyComment(t *testing.T) {
	for pattern, ok := range map[string]bool{"": true, "/retest": true, "/^a$/m": true, "/(/": false, "[": false} {
		v := &verifier{}
		v.trigger("on[0]", &lock.Trigger{Type: TypeComment, BodyMatch: pattern})
		if (len(v.problems) == 0) != ok {
			t.Errorf("%q: %v", pattern, v.problems)
		}
	}
}
