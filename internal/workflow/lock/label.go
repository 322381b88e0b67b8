package lock

import "strings"

// maxLabel bounds a label made from a script, in characters.
const maxLabel = 80

// Label is what the step is called where no evaluated name is known: its name as written, else what it does. The agent, the API
// and the dashboard call it the same.
func (s Step) Label() string {
	if s.Name != "" {
		return s.Name
	}
	if s.Uses != "" {
		return "Check out the repository"
	}
	for line := range strings.SplitSeq(s.Run, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "set -") {
			continue // says nothing about what the step is for
		}
		if runes := []rune(line); len(runes) > maxLabel {
			line = string(runes[:maxLabel]) + "…"
		}
		return "Run " + line
	}
	return "Run"
}
