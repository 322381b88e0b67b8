package workflow

import (
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// TypeComment is the lock's name of issue_comment (WF-12).
const TypeComment = "comment"

// What a comment may stand on (ci.Event.CommentOn).
const (
	CommentOnIssue = "issue"
	CommentOnPR    = "pr"
)

// maxComment bounds what of a comment is looked at, in bytes; GitHub takes no longer ones.
const maxComment = 64 << 10

var (
	commentKeys    = keys{name: "issue_comment", known: []string{"types", "source", "body-match", "repos"}}
	commentActions = []string{"created", "edited", "deleted"}
)

// comment reads issue_comment, or comment. Without types only new comments count: an edited or deleted one rarely asks for work.
func (d *decoder) comment(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeComment, Actions: commentActions[:1:1]}
	d.filters(v, commentKeys, func(key string, v value) {
		switch key {
		case "types":
			t.Actions = d.choices(v, commentActions)
		case "source":
			s, ok := d.word(v)
			if ok && s != CommentOnIssue && s != CommentOnPR {
				d.errorf(v, "write issue or pr, or leave it out for both", "unknown source %q of a comment", short(s))
			}
			t.Source = s
		case "repos":
			t.Repos = d.globs(v, false)
		case "body-match":
			s, ok := d.word(v)
			if err := checkBodyMatch(s); ok && err != nil {
				d.errorf(v, "a pattern such as '/deploy **', or a regular expression such as '/^retest$/m'", "invalid body-match %q: %s", short(s), err)
			}
			t.BodyMatch = s
		}
	})
	return t
}

func checkBodyMatch(pattern string) error {
	if source, flags, ok := regexText(pattern); ok {
		_, err := compileRegex(source, flags)
		return err
	}
	_, err := parseGlob(pattern)
	return err
}

func (m *matcher) comment(t *lock.Trigger) bool {
	actions := t.Actions
	if len(actions) == 0 {
		actions = commentActions[:1]
	}
	return m.all(m.anyOf("types", actions, m.ev.Action), m.exact("source", t.Source, m.ev.CommentOn), m.body(t.BodyMatch))
}

// body compares the comment, without the white space around it and with plain line ends.
func (m *matcher) body(pattern string) bool {
	if pattern == "" {
		return true
	}
	text := m.ev.Comment
	if len(text) > maxComment {
		text = strings.ToValidUTF8(text[:maxComment], "")
	}
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	c := Check{Check: "body-match", Pattern: pattern, Value: text}
	if source, flags, ok := regexText(pattern); ok {
		re, err := compileRegex(source, flags)
		c.Passed = err == nil && re.MatchString(text)
	} else {
		c.Passed = matchGlob(pattern, text)
	}
	if !c.Passed {
		c.Reason = "the comment does not match"
	}
	return m.record(c)
}
