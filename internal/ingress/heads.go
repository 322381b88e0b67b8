package ingress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/store/db"
)

// Bounds of one look at a forge's branches and tags.
const (
	maxHeads  = 1000 // compared for one source
	maxMissed = 20   // started at once
)

// headAt is a branch or tag with the commit at its tip. Was is the commit that was recorded, "" for none.
type headAt struct{ Ref, Was, SHA string }

// headMoves is what a look leads to. Each ref is in one list at most.
type headMoves struct {
	Record  []headAt // write down; nothing to start
	Gone    []string
	Suspect []headAt // a difference seen for the first time: a delivery may be on its way
	Missed  []headAt // seen twice: a delivery is missing, unless one is found
	Note    string   // what the look left out, "" for nothing
}

// compareHeads compares what is recorded of a source with what its forge has. At the first look all is recorded that is not known.
func compareHeads(known []db.SourceHeadsRow, seen map[string]string, first bool) headMoves {
	var m headMoves
	all := seen
	seen = watched(seen, &m)
	left := maxHeads - len(known)
	recorded := make(map[string]bool, len(known))
	for _, k := range known {
		recorded[k.Ref] = true
		sha, there := all[k.Ref]
		switch {
		case !there:
			m.Gone = append(m.Gone, k.Ref)
			left++
		case sha == k.Sha && k.Pending == "":
		case sha == k.Sha:
			m.Record = append(m.Record, headAt{k.Ref, k.Sha, sha})
		case sha == k.Pending:
			m.Missed = append(m.Missed, headAt{k.Ref, k.Sha, sha})
		default:
			m.Suspect = append(m.Suspect, headAt{k.Ref, k.Sha, sha})
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(seen)) {
		switch {
		case recorded[ref]:
		case left <= 0: // not watched; Note says so
		case first || len(seen) > maxHeads: // of a crowd it cannot be told what is new
			m.Record = append(m.Record, headAt{ref, "", seen[ref]})
			left--
		default:
			m.Suspect = append(m.Suspect, headAt{ref, "", seen[ref]})
			left--
		}
	}
	if len(m.Missed) > maxMissed {
		m.Note = fmt.Sprintf("%d branches and tags changed at once without a delivery: nothing was started, so many look like a mirror or an import; start what you want with `kici source trigger`", len(m.Missed))
		m.Record = append(m.Record, m.Missed...)
		m.Missed = nil
	}
	return m
}

// watched are the branches and tags that are compared: of a crowd only the branches.
func watched(seen map[string]string, m *headMoves) map[string]string {
	out := make(map[string]string, len(seen))
	branches := 0
	for ref, sha := range seen {
		isBranch := strings.HasPrefix(ref, "refs/heads/")
		if isBranch {
			branches++
		}
		if sha != "" && (isBranch || strings.HasPrefix(ref, "refs/tags/")) {
			out[ref] = sha
		}
	}
	if len(out) <= maxHeads {
		return out
	}
	m.Note = fmt.Sprintf("it has %d branches and tags: only its branches are watched for missed pushes", len(out))
	if branches > maxHeads {
		m.Note = fmt.Sprintf("it has %d branches: %d of them are watched for missed pushes, and no tags", branches, maxHeads)
	}
	maps.DeleteFunc(out, func(ref, _ string) bool { return !strings.HasPrefix(ref, "refs/heads/") })
	return out
}
