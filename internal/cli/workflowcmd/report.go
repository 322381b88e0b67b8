package workflowcmd

import (
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
)

// report is what validate and compile print.
type report struct {
	OK        bool               `json:"ok"`
	Result    string             `json:"result"`            // ok, missing, corrupt or drift
	Workflows []string           `json:"workflows"`         // names
	Lock      string             `json:"lock,omitempty"`    // the lock file that was written or compared
	Current   *bool              `json:"current,omitempty"` // compile --check
	Problems  []workflow.Problem `json:"problems"`

	sources map[string][]string // lines by file, to show where a problem is
}

// print writes the report; people get one line a problem, and on a terminal the line that it is in.
func (r *report) print(c *console.Console) error {
	if r.Problems == nil {
		r.Problems = []workflow.Problem{}
	}
	if r.Workflows == nil {
		r.Workflows = []string{}
	}
	return c.Print(r, func() error {
		for _, p := range r.Problems {
			if err := r.problem(c, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *report) problem(c *console.Console, p workflow.Problem) error {
	word, class := "error", "failed"
	if p.Warning {
		word, class = "warning", "allowed"
	}
	place := p.File
	if p.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
	}
	line := console.CleanLine(p.Message)
	if p.Cure != "" {
		line += c.Dim(" (" + console.CleanLine(p.Cure) + ")")
	}
	if place != "" {
		place = c.Bold(console.CleanLine(place)) + ": "
	}
	if _, err := fmt.Fprintf(c.Out, "%s%s: %s\n", place, c.Paint(word, class), line); err != nil {
		return err
	}
	if !c.OutTerminal {
		return nil
	}
	return r.excerpt(c, p, class)
}

// excerpt shows the line of a problem with a mark below its column.
func (r *report) excerpt(c *console.Console, p workflow.Problem, class string) error {
	lines := r.sources[p.File]
	if p.Line < 1 || p.Line > len(lines) || p.Col < 1 {
		return nil
	}
	raw := []rune(strings.TrimRight(lines[p.Line-1], "\r"))
	if len(raw) > 160 || p.Col > len(raw)+1 {
		return nil
	}
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(raw[:p.Col-1]))
	number := fmt.Sprintf("%5d", p.Line)
	_, err := fmt.Fprintf(c.Out, "%s %s\n%s %s%s\n", c.Dim(number+" |"), console.Clean(string(raw)),
		c.Dim("      |"), indent, c.Paint("^", class))
	return err
}

func linesOf(files []workflow.Source) map[string][]string {
	out := make(map[string][]string, len(files))
	for _, f := range files {
		out[f.Path] = strings.Split(string(f.Data), "\n")
	}
	return out
}
