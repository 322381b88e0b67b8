package web

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
)

// text makes a string from a repository or a job safe to read: control characters vanish, and marks that turn the direction
// of writing become visible, so that a name cannot pretend to be another. HTML is escaped by templ.
func text(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return -1
		case isBidi(r):
			return '\u25af' // ▯
		}
		return r
	}, s)
}

func isBidi(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func short(sha string) string { return sha[:min(7, len(sha))] }

func by(actor string) string {
	if actor == "" {
		return ""
	}
	return "by " + text(actor)
}

func epoch(t *client.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func nowMs() string { return strconv.FormatInt(time.Now().UnixMilli(), 10) }

// sinceThen is how long something has been going on.
func sinceThen(t *client.Time) string {
	ms := time.Since(t.Time).Milliseconds()
	return durationMs(&ms)
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

// pairs are the entries of m by key.
func pairs(m map[string]string) (out [][2]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, [2]string{k, m[k]})
	}
	return out
}

// durationMs is a length of time for people: 0.4 s, 18 s, 1 m 02, 2 h 05.
func durationMs(ms *int64) string {
	if ms == nil {
		return ""
	}
	d := max(*ms, 0)
	s := float64(d) / 1000
	switch {
	case s < 9.95:
		return fmt.Sprintf("%.1f s", s)
	case s < 59.5:
		return fmt.Sprintf("%.0f s", s)
	case s < 60:
		return "1 m 00"
	case s < 3600:
		return fmt.Sprintf("%d m %02d", d/60000, d/1000%60)
	}
	return fmt.Sprintf("%d h %02d", d/3600000, d/60000%60)
}

func ago(t client.Time) string {
	d := time.Since(t.Time)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d m ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return t.Format("2 Jan 2006")
}

// ahead is how far in the future an instant lies.
func ahead(t client.Time) string {
	d := time.Until(t.Time)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("in %d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("in %d m", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("in %d h", int(d.Hours()))
	}
	return fmt.Sprintf("in %d days", int(d.Hours()/24))
}

// actionKey makes a form safe to send twice: it becomes the Idempotency-Key.
func actionKey() string { return "web-" + rand.Text() }

func labels(set []string) string { return text(strings.Join(set, " ")) }

func gib(n int64) string { return fmt.Sprintf("%.3g", float64(n)/(1<<30)) }

func cpus(milli int64) string { return fmt.Sprintf("%.3g", float64(milli)/1000) }
