package placement

import (
	mathbits "math/bits"

	"github.com/kici-go/kici/internal/ci"
)

// Matching is done on bit sets over the labels that some shape names (D30): a label that no shape asks for or excludes
// cannot decide anything, except as a gate, where it makes the offer unusable for every shape.

// universe numbers the labels, and the patterns of labels, that shapes name. An offer has a pattern when one of its labels matches.
type universe struct {
	index    map[string]int
	names    []string
	words    int
	patterns []pattern
	known    map[string][]int // by label, the patterns that it matches
}

type pattern struct {
	index   int
	matches func(label string) bool
}

func newUniverse(shapes []Shape) universe {
	u := universe{index: map[string]int{}, known: map[string][]int{}}
	add := func(labels []string) {
		for _, l := range labels {
			if _, ok := u.index[l]; ok {
				continue
			}
			u.index[l] = len(u.names)
			if ci.IsLabelPattern(l) {
				if matches, err := ci.CompileLabelPattern(l); err == nil { // else nothing has it
					u.patterns = append(u.patterns, pattern{len(u.names), matches})
				}
			}
			u.names = append(u.names, l)
		}
	}
	for i := range shapes {
		add(shapes[i].Labels)
		add(shapes[i].Exclude)
	}
	u.words = (len(u.names) + 63) / 64
	return u
}

type bits []uint64

// set returns labels as bits; complete is false when some label is outside the universe.
func (u universe) set(labels []string) (b bits, complete bool) {
	b, complete = make(bits, u.words), true
	for _, l := range labels {
		if i, ok := u.index[l]; ok {
			b[i/64] |= 1 << (i % 64)
		} else {
			complete = false
		}
	}
	return b, complete
}

// list returns the names of the bits in b that are not in minus.
func (u universe) list(b, minus bits) []string {
	var out []string
	for w := range b {
		out = u.appendNames(out, w, b[w]&^minus[w])
	}
	return out
}

func (b bits) within(c bits) bool {
	for i := range b {
		if b[i]&^c[i] != 0 {
			return false
		}
	}
	return true
}

func (b bits) meets(c bits) bool {
	for i := range b {
		if b[i]&c[i] != 0 {
			return true
		}
	}
	return false
}

// offer is what one agent or label set brings to matching.
type offer struct {
	have, gate bits
	closed     bool     // its gate names a label that no shape names
	gateNames  []string // the whole gate, for sentences
	size       int      // number of labels offered
}

func (u universe) offer(labels, gate []string) offer {
	have, _ := u.set(labels)
	if len(u.patterns) > 0 {
		for _, l := range labels {
			for _, i := range u.matching(l) {
				have[i/64] |= 1 << (i % 64)
			}
		}
	}
	g, complete := u.set(gate)
	return offer{have: have, gate: g, closed: !complete, gateNames: gate, size: len(labels)}
}

// matching are the patterns that a label matches.
func (u universe) matching(label string) []int {
	found, ok := u.known[label]
	if !ok {
		for _, p := range u.patterns {
			if p.matches(label) {
				found = append(found, p.index)
			}
		}
		u.known[label] = found
	}
	return found
}

// demand is what one shape asks for.
type demand struct{ want, exclude bits }

func (u universe) demand(s *Shape) demand {
	want, _ := u.set(s.Labels)
	exclude, _ := u.set(s.Exclude)
	return demand{want, exclude}
}

// match reports whether o may serve d (SC-11, QUE-5). A gate asks for its very label: a pattern does not open it.
func (d demand) match(o *offer) bool {
	return !o.closed && d.want.within(o.have) && o.gate.within(d.want) && !d.exclude.meets(o.have)
}

// mismatch says why o does not serve d, and how many labels stand in the way.
func (d demand) mismatch(o *offer) (ReasonKind, int) {
	missing, excluded := 0, 0
	for i := range d.want {
		missing += mathbits.OnesCount64(d.want[i] &^ o.have[i])
		excluded += mathbits.OnesCount64(d.exclude[i] & o.have[i])
	}
	switch {
	case missing > 0:
		return ReasonNoLabels, missing
	case excluded > 0:
		return ReasonExcluded, excluded
	}
	return ReasonGate, len(o.gateNames)
}

// between names the labels behind a mismatch.
func (d demand) between(u universe, kind ReasonKind, o *offer) []string {
	var out []string
	if kind == ReasonGate {
		for _, g := range o.gateNames {
			if i, ok := u.index[g]; !ok || d.want[i/64]&(1<<(i%64)) == 0 {
				out = append(out, g)
			}
		}
		return out
	}
	for w := range d.want {
		b := d.want[w] &^ o.have[w]
		if kind == ReasonExcluded {
			b = d.exclude[w] & o.have[w]
		}
		out = u.appendNames(out, w, b)
	}
	return out
}

func (u universe) appendNames(out []string, word int, b uint64) []string {
	for ; b != 0; b &= b - 1 {
		out = append(out, u.names[word*64+mathbits.TrailingZeros64(b)])
	}
	return out
}

// suits reports whether an agent that was started for something else has what the shape declares: the same image, or none, and a
// declared resource must equal what it was started with, in either direction (MG-53). Static agents have no known resources and no
// image.
func suits(a *Agent, sh *Shape) bool {
	c := sh.Claim
	switch {
	case a.Image != sh.Image:
		return false
	case a.NodeID == "":
		return true
	}
	same := func(declared, has int64) bool { return declared == 0 || declared == has }
	return same(c.Requests.CPUMilli, a.Reserved.CPUMilli) && same(c.Requests.MemBytes, a.Reserved.MemBytes) &&
		same(c.Limits.CPUMilli, a.Limits.CPUMilli) && same(c.Limits.MemBytes, a.Limits.MemBytes)
}
