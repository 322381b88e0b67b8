package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNotesFitAndSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var notes []note
		for i := range rapid.IntRange(1, 400).Draw(t, "n") {
			key := rapid.StringMatching(`[ -~]{0,200}`).Draw(t, "key")
			notes = append(notes, note{Topic(fmt.Sprint("topic", i%5)), key})
		}
		var got []note
		for _, payload := range encodeNotes("origin", notes) {
			if len(payload) >= 8000 {
				t.Fatalf("payload of %d bytes", len(payload))
			}
			origin, some := decodeNotes(payload)
			if origin != "origin" {
				t.Fatal(origin)
			}
			got = append(got, some...)
		}
		if !slices.Equal(got, notes) {
			t.Fatalf("sent %v, got %v", notes, got)
		}
	})
}

// A key that fits no payload becomes a note without one, which is for everybody.
func TestEndlessKey(t *testing.T) {
	payloads := encodeNotes("origin", []note{{TopicRuns, strings.Repeat("x", 20_000)}})
	if _, notes := decodeNotes(payloads[0]); len(payloads) != 1 || !slices.Equal(notes, []note{{TopicRuns, ""}}) {
		t.Error(payloads)
	}
}
