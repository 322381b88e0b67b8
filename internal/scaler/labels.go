package scaler

import (
	"cmp"
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

// routed is the platform that a pool's jobs may name (SC-8): declared, else the host's where agents have it, else linux on the host's
// architecture, which is assumed for routing only.
func (e *Entry) routed(kind backend.Kind, host Platform) Platform {
	p := e.Platform
	switch {
	case kind.HostPlatform:
		p.OS, p.Arch = cmp.Or(p.OS, host.OS), cmp.Or(p.Arch, host.Arch)
	case p == Platform{}:
		p = Platform{"linux", host.Arch}
	}
	return p
}

// taints are the plain labels of a declared platform that a job must name to get there (SC-9). What a host merely is taints nothing:
// on an arm64 machine, "linux" means that machine (docs/decisions/0007).
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
	t := taints(e.Platform)
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

// offers are the label sets of an entry, enriched for routing (SC-5) and for what agents carry (SC-6), on a host of this platform.
func (e *Entry) offers(kind backend.Kind, host Platform) []placement.LabelSet {
	t := taints(e.Platform)
	routed := e.routed(kind, host)
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
			OnlyImages:  kind.ImagesOf(s.Options) == backend.OnlyImages,
		})
	}
	return out
}
