package scaler

import (
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// platformLike are plain labels that mean a taint when they stand in a label set: the migration shim of SC-10.
var platformLike = map[string]string{
	"macos": "macos", "darwin": "macos", "windows": "windows", "win32": "windows", "arm64": "arm64", "aarch64": "arm64",
}

// resolved is the platform of a pool (SC-8): declared, else the host's where agents have it, else unknown.
func (l *loader) resolved(e *Entry, kind backend.Kind) (p Platform, known bool) {
	p = e.Platform
	if kind.HostPlatform {
		if p.OS == "" {
			p.OS = l.options.GOOS
		}
		if p.Arch == "" {
			p.Arch = l.options.GOARCH
		}
	}
	return p, p != Platform{}
}

// taints are the plain labels of a platform that a job must name to get there (SC-9).
func taints(p Platform) []string {
	var out []string
	switch p.OS {
	case "darwin", "macos":
		out = append(out, "macos")
	case "windows":
		out = append(out, "windows")
	}
	if p.Arch == "arm64" {
		out = append(out, "arm64")
	}
	return out
}

// gate is the mandatory labels of one set (SC-10): configured, structured taints and the shim.
func gate(e *Entry, s *LabelSet, taints []string) (labels, shim []string) {
	for _, label := range s.Labels {
		if platformLike[label] != "" && !slices.Contains(taints, label) {
			shim = append(shim, label)
		}
	}
	return ci.NormalizeLabels(slices.Concat(e.Mandatory, taints, shim)), shim
}

// checkGates refuses a set whose gate no job could name (CF-8) and warns about reliance on the shim.
func (l *loader) checkGates(r reader, e *Entry) {
	kind, _ := l.kind(e.Type)
	p, _ := l.resolved(e, kind)
	t := taints(p)
	for i := range e.LabelSets {
		s := &e.LabelSets[i]
		labels, shim := gate(e, s, t)
		for _, g := range labels {
			if !slices.Contains(s.Labels, g) && !slices.Contains(t, g) {
				r.fault(field{s.field.node, s.field.path + ".labels"}, "add it to the labels of this set",
					"scaler %s: mandatory label %q is not among the labels of label set %d, so no job could get there", e.Name, g, i)
			}
		}
		if len(shim) > 0 {
			r.warn(field{s.field.node, s.field.path + ".labels"}, "declare platform instead",
				"%s is taken as a platform that jobs must name", strings.Join(shim, ", "))
		}
	}
}

// offers are the label sets of an entry, enriched for routing (SC-5) and for what agents carry (SC-6).
func (e *Entry) offers(kind backend.Kind, goos, goarch string) []placement.LabelSet {
	l := loader{options: LoadOptions{GOOS: goos, GOARCH: goarch}}
	p, known := l.resolved(e, kind)
	t := taints(p)
	routed := p
	if !known {
		routed = Platform{"linux", goarch} // SC-8: assumed for routing only
	}
	own := []string{"kici:agent:" + e.Type, "kici:scaler:" + e.Name}
	for _, role := range e.Roles {
		own = append(own, "kici:role:"+role)
	}
	var out []placement.LabelSet
	for i := range e.LabelSets {
		s := &e.LabelSets[i]
		g, _ := gate(e, s, t)
		carried := ci.NormalizeLabels(slices.Concat(s.Labels, own, t))
		out = append(out, placement.LabelSet{
			Declared:    s.Labels,
			Enriched:    ci.NormalizeLabels(slices.Concat(carried, ci.PlatformLabels(routed.OS, routed.Arch))),
			Gate:        g,
			AgentLabels: carried,
			Resources:   s.Resources,
			Roles:       e.Roles,
		})
	}
	return out
}
