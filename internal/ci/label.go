package ci

import (
	"slices"
	"strings"
)

// NormalizeLabels returns labels lower-cased, trimmed, without empties and duplicates, sorted (SC-3). Regular expressions of selectors
// (IsLabelPattern) keep their case, which has a meaning in them.
func NormalizeLabels(labels []string) []string {
	out := make([]string, 0, len(labels))
	for _, l := range labels {
		if l = strings.TrimSpace(l); !isLabelRegexp(l) {
			l = strings.ToLower(l)
		}
		if l != "" {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// LabelKey is the normalised form as one string, "" for none (SC-3).
func LabelKey(labels []string) string { return strings.Join(NormalizeLabels(labels), ",") }

// PlatformLabels are the routing labels of an operating system and architecture in Go's names (SC-7).
func PlatformLabels(goos, goarch string) []string {
	var out []string
	switch goos {
	case "darwin", "macos":
		out = append(out, "kici:os:macos", "kici:os:darwin")
	case "windows", "win32":
		out = append(out, "kici:os:windows", "kici:os:win32")
	default:
		out = append(out, "kici:os:"+goos)
	}
	switch goarch {
	case "amd64", "x64":
		out = append(out, "kici:arch:x64", "kici:arch:amd64")
	default:
		out = append(out, "kici:arch:"+goarch)
	}
	return out
}
