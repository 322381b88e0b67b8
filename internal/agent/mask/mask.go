// Package mask hides secret values in a job's output (D11). A Set holds the values of one job and can grow while the job
// runs (::add-mask::); a Stream masks one flow of bytes, also where a value is split between two writes.
//
// What is hidden is the union of all occurrences of all values: overlapping ones become one replacement. The output is
// the same however the input is cut into writes.
package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Replacement stands for a hidden value.
const Replacement = "***"

// MinLength of a value that is hidden: shorter ones would blacken ordinary text.
const MinLength = 4

// Bounds of a set, so that a job cannot make masking slow or large without end.
const (
	MaxValueBytes = 64 << 10
	MaxPatterns   = 20_000
)

// Set is the values to hide. It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	known   map[string]bool
	current atomic.Pointer[index]
}

// New returns a set that hides values, their lines, and their usual encodings.
func New(values ...string) *Set {
	s := &Set{known: map[string]bool{}}
	s.current.Store(&index{})
	s.Add(values...)
	return s
}

// Add hides further values from now on.
func (s *Set) Add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grew := false
	for _, v := range values {
		for _, p := range patterns(v) {
			if !s.known[p] && len(s.known) < MaxPatterns {
				s.known[p] = true
				grew = true
			}
		}
	}
	if grew {
		s.current.Store(newIndex(s.known))
	}
}

// Contains reports whether text holds a value of the set.
func (s *Set) Contains(text string) bool {
	return s.String(text) != text
}

// String masks a whole text.
func (s *Set) String(text string) string {
	ix := s.current.Load()
	if ix.longest == 0 || text == "" {
		return text
	}
	out, _, _ := ix.mask(nil, []byte(text), 0, true)
	return string(out)
}

// Stream returns a masker for one flow of bytes.
func (s *Set) Stream() *Stream { return &Stream{set: s} }

// Stream masks one flow of bytes. It is not safe for concurrent use.
type Stream struct {
	set    *Set
	held   []byte // a suffix of the input that could be the beginning of a value
	hidden int    // so many bytes of held belong to a value whose replacement is already out
	out    []byte
}

// Write returns what is certain after p: it may lack a suffix that could be the beginning of a value. The result is
// valid until the next call.
func (m *Stream) Write(p []byte) []byte {
	ix := m.set.current.Load()
	if ix.longest == 0 && len(m.held) == 0 {
		return p
	}
	return m.run(ix, p, false)
}

// Close returns the rest; nothing follows.
func (m *Stream) Close() []byte {
	if len(m.held) == 0 {
		return nil
	}
	return m.run(m.set.current.Load(), nil, true)
}

func (m *Stream) run(ix *index, p []byte, last bool) []byte {
	buf := p
	if len(m.held) > 0 {
		m.held = append(m.held, p...)
		buf = m.held
	}
	var used int
	m.out, used, m.hidden = ix.mask(m.out[:0], buf, m.hidden, last)
	m.held = append(m.held[:0], buf[used:]...)
	return m.out
}

// index finds patterns by their first four bytes.
type index struct {
	longest int
	filter  [1 << 10]uint64 // one bit for each hash of four bytes
	byKey   map[uint32][]string
	starts  map[string]bool // all prefixes of one to three bytes
}

func newIndex(known map[string]bool) *index {
	ix := &index{byKey: map[uint32][]string{}, starts: map[string]bool{}}
	for p := range known {
		k := binary.LittleEndian.Uint32([]byte(p))
		ix.byKey[k] = append(ix.byKey[k], p)
		h := hash(k)
		ix.filter[h>>6] |= 1 << (h & 63)
		ix.longest = max(ix.longest, len(p))
		for n := 1; n < MinLength; n++ {
			ix.starts[p[:n]] = true
		}
	}
	for _, ps := range ix.byKey {
		slices.SortFunc(ps, func(a, b string) int { return len(b) - len(a) })
	}
	return ix
}

func hash(k uint32) uint32 { return k * 2654435761 >> 16 }

// mask appends the masked form of in to out and returns how much of in it used up; the rest must come again, with more
// behind it. hidden counts the leading bytes of in that belong to a value already replaced.
func (ix *index) mask(out, in []byte, hidden int, last bool) (masked []byte, used, stillHidden int) {
	copied := hidden // start of the bytes not yet copied; below hidden they are not copied at all
	i := 0
	for i < len(in) {
		if len(in)-i >= MinLength {
			k := binary.LittleEndian.Uint32(in[i:])
			h := hash(k)
			if ix.filter[h>>6]&(1<<(h&63)) == 0 {
				i++
				continue
			}
		}
		n, open := ix.at(in[i:])
		if open && !last {
			break
		}
		if n > 0 && i+n > hidden {
			if i >= hidden { // a new interval; otherwise it extends the one before
				out = append(append(out, in[copied:i]...), Replacement...)
			}
			hidden = i + n
			copied = hidden
		}
		i++
	}
	if i > copied {
		out = append(out, in[copied:i]...)
	}
	return out, i, max(hidden-i, 0)
}

// at returns the length of the longest value at the start of b, and whether a longer one could still come.
func (ix *index) at(b []byte) (n int, open bool) {
	if len(b) < MinLength {
		return 0, ix.starts[string(b)]
	}
	for _, p := range ix.byKey[binary.LittleEndian.Uint32(b)] {
		if len(p) > len(b) {
			open = open || strings.HasPrefix(p, string(b))
		} else if n == 0 && string(b[:len(p)]) == p {
			n = len(p)
		}
	}
	return n, open
}

// patterns are all forms of a value that are hidden: itself, each of its lines, and how common tools print it.
func patterns(value string) []string {
	if len(value) > MaxValueBytes {
		value = value[:MaxValueBytes]
	}
	value = strings.TrimRight(value, "\r\n")
	if len(value) < MinLength {
		return nil
	}
	out := []string{value}
	if strings.ContainsAny(value, "\r\n") {
		for line := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '\n' || r == '\r' }) {
			if line = strings.TrimSpace(line); len(line) >= MinLength {
				out = append(out, line)
			}
		}
	}
	out = append(out, jsonForm(value), url.QueryEscape(value), url.PathEscape(value))
	out = append(out, base64Forms([]byte(value))...)
	return slices.DeleteFunc(out, func(p string) bool { return len(p) < MinLength })
}

func jsonForm(value string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// base64Forms are the value's base64 by itself, and the part of it that is the same wherever the value stands inside
// something longer (one form for each of the three alignments).
func base64Forms(value []byte) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		out = append(out, enc.EncodeToString(value))
		for shift := range 3 {
			whole := enc.EncodeToString(append(make([]byte, shift), value...))
			from := (shift*8 + 5) / 6          // characters that also hold bits of what stands before
			to := (shift + len(value)) * 8 / 6 // a last character that also holds bits of what follows
			if part := whole[from:to]; len(part) >= 8 {
				out = append(out, part)
			}
		}
	}
	return out
}
