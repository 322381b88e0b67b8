package workflow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

var runsOnKeys = keys{
	name: "runs-on", known: []string{"labels", "exclude"},
	refused: func(key string) string {
		if key == "group" {
			return "use labels; give the agents of the group a label of their own"
		}
		return ""
	},
}

func (d *decoder) runsOn(v value) lock.Selector {
	var s lock.Selector
	before := d.errors
	if v.n.Kind != mappingKind {
		s.Labels = d.labels(v)
	} else {
		d.object(v, runsOnKeys, func(key string, v value) {
			if key == "labels" {
				s.Labels = d.labels(v)
			} else {
				s.Exclude = d.labels(v)
			}
		})
	}
	if len(s.Labels) == 0 && d.errors == before {
		d.errorf(v, "write linux, or another label of your scalers", "runs-on names no label")
	}
	if l := ci.SelectorConflict(s.Labels, s.Exclude); l != "" {
		d.errorf(v, "remove it from one of them", "label %q is both required and excluded", l)
	}
	return s
}

const maxLabel = 256

func (d *decoder) labels(v value) []string {
	var out []string
	d.list(v, true, func(_ int, v value) {
		s := d.template(v, scopeReady)
		if s == "" {
			if v.n.Kind == scalarKind && !v.isNull() {
				d.errorf(v, "", "a label is empty")
			}
			return
		}
		if err := checkLabel(s); err != nil {
			d.errorf(v, "", "%s", err)
			return
		}
		if hosted(s) {
			d.warnf(v, "use a label of your own scalers or agents, such as linux",
				"label %q is one of GitHub's own machines; no agent of kici has it unless you give it to one", s)
		}
		out = append(out, s)
	})
	return out
}

func checkLabel(s string) error {
	plain := !strings.Contains(s, "${{")
	switch {
	case len(s) > maxLabel && plain:
		return fmt.Errorf("label %q is longer than %d bytes", short(s), maxLabel)
	case plain && strings.ContainsAny(s, "\n\r\t\x00"), plain && strings.Contains(s, ",") && !strings.HasPrefix(s, "/"):
		return fmt.Errorf("label %q contains a comma or a control character", short(s))
	case strings.TrimSpace(s) == "":
		return errors.New("a label is empty")
	case plain && ci.IsLabelPattern(s):
		_, err := ci.CompileLabelPattern(s)
		return err
	}
	return nil
}

func hosted(label string) bool {
	for _, os := range []string{"ubuntu", "windows", "macos"} {
		if rest, ok := strings.CutPrefix(label, os+"-"); ok && rest != "" && (rest == "latest" || rest[0] >= '0' && rest[0] <= '9') {
			return true
		}
	}
	return false
}
