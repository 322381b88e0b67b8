package container

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

const (
	ourNode   = "0193-aaaaaaaaaaaa"
	otherNode = "0193-bbbbbbbbbbbb"
)

var evening = time.Date(2026, 11, 30, 19, 5, 0, 0, time.UTC)

func markOf(node string, unused time.Duration, name string) string {
	if name != nameKept {
		name = hashName(name)
	}
	return markName(node) + ":" + markTag(evening.Add(-unused), name)
}

func TestMarks(t *testing.T) {
	ref := markOf(ourNode, 0, "golang:1.26")
	if !strings.HasPrefix(ref, "localhost/kici-image-aaaaaaaaaaaa:used-20261130-1905-") {
		t.Error(ref)
	}
	m, ok := readMark(ref, ourNode)
	if !ok || !m.own || !m.used.Equal(evening) || m.name != hashName("golang:1.26") {
		t.Errorf("%+v %v", m, ok)
	}
	if m, ok := readMark(ref, otherNode); !ok || m.own {
		t.Errorf("to another node: %+v %v", m, ok)
	}
	for _, bad := range []string{
		"golang:1.26", "localhost/kici-image-aaaaaaaaaaaa:latest", "localhost/kici-image-:used-20261130-1905-kept", "localhost/kici-image-a:used-20269930-1905-kept",
		"localhost/kici-image-a:used-20261130-1905-0", "docker.io/localhost/kici-image-a:used-20261130-1905-kept", strings.ToUpper(ref), ref + "x", "",
	} {
		if m, ok := readMark(bad, ourNode); ok {
			t.Errorf("%q was read as %+v", bad, m)
		}
	}
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, same := range [][]string{
		{"golang", "golang:latest", "docker.io/library/golang:latest", "index.docker.io/library/golang"},
		{"r:5000/a/b:1", "r:5000/a/b:1"},
		{"golang" + digest, "golang:1.26" + digest, "docker.io/library/golang" + digest},
	} {
		for _, ref := range same {
			if hashName(ref) != hashName(same[0]) || len(hashName(ref)) != 12 {
				t.Errorf("%s is not %s", ref, same[0])
			}
		}
	}
	if hashName("golang:1") == hashName("golang:2") || hashName("a/b:1") == hashName("b:1") || hashName("UPPER CASE") != nameKept {
		t.Error("names that differ are the same")
	}
}

// Which images go. Names say what they are; "x!" is used by a container.
func TestCollectable(t *testing.T) {
	const day, gib = 24 * time.Hour, 1 << 30
	img := func(id string, tags ...string) engineapi.Image {
		return engineapi.Image{ID: "sha256:" + id, Tags: tags, Size: gib}
	}
	ours := func(id string, unused time.Duration) engineapi.Image {
		return img(id, id+":1", markOf(ourNode, unused, id+":1"))
	}
	week := bounds{age: 7 * day}
	for _, c := range []struct {
		name     string
		images   []engineapi.Image
		bounds   bounds
		pressing bool
		want     []string // "id: why: what is removed, in order"
	}{
		{"nothing there", nil, week, true, nil},
		{"not pulled by us", []engineapi.Image{img("a", "a:1"), img("b", "<none>:<none>"), img("c")}, bounds{time.Hour, 1}, true, nil},
		{"another node's", []engineapi.Image{img("a", "a:1", markOf(otherNode, 99*day, "a:1"))}, bounds{time.Hour, 1}, true, nil},
		{"old and new", []engineapi.Image{ours("new", 6*day), ours("old", 8*day), ours("older", 9*day)}, week, false, []string{
			"older: unused for 9 days: older:1 " + markOf(ourNode, 9*day, "older:1"), "old: unused for 8 days: old:1 " + markOf(ourNode, 8*day, "old:1"),
		}},
		{"for ever", []engineapi.Image{ours("old", 800*day)}, bounds{size: 9 * gib}, false, nil},
		{"in use", []engineapi.Image{ours("a!", 8*day)}, bounds{time.Hour, 1}, true, nil},
		{"the newest mark counts", []engineapi.Image{img("a", "a:1", markOf(ourNode, 8*day, "a:1"), markOf(ourNode, day, "a:1"))}, week, false, nil},
		{"too large together", []engineapi.Image{ours("a", 3*time.Hour), ours("b!", 4*time.Hour), ours("c", 2*time.Hour), img("d", "d:1")}, bounds{7 * day, 2*gib + 1}, false, []string{
			"a: pulled images take 3.0 GiB together, more than imageMaxSize: a:1 " + markOf(ourNode, 3*time.Hour, "a:1"),
		}},
		{"age first, then size", []engineapi.Image{ours("a", 8*day), ours("b", day), ours("c", 2*day)}, bounds{7 * day, gib}, false, []string{
			"a: unused for 8 days: a:1 " + markOf(ourNode, 8*day, "a:1"),
			"c: pulled images take 2.0 GiB together, more than imageMaxSize: c:1 " + markOf(ourNode, 2*day, "c:1"),
		}},
		{"a full disk", []engineapi.Image{ours("a", time.Hour), ours("b!", day), ours("c", 3*time.Hour), img("d", "d:1")}, week, true, []string{
			"c: unused for 3 hours, and the disk is full: c:1 " + markOf(ourNode, 3*time.Hour, "c:1"),
			"a: unused for 60 minutes, and the disk is full: a:1 " + markOf(ourNode, time.Hour, "a:1"),
		}},
		{"pulled just now", []engineapi.Image{ours("a", 4*time.Minute)}, bounds{7 * day, 1}, true, nil},
		{"somebody's own tag", []engineapi.Image{img("a", "mine:1", "a:1", markOf(ourNode, 8*day, "a:1"))}, week, true, nil},
		{"a name that was somebody's", []engineapi.Image{img("a", "a:1", markOf(ourNode, 8*day, nameKept))}, week, true, nil},
		{"and has moved on", []engineapi.Image{img("a", "<none>:<none>", markOf(ourNode, 8*day, nameKept))}, week, false, []string{
			"a: unused for 8 days: " + markOf(ourNode, 8*day, nameKept),
		}},
		{"replaced by a newer one of its name", []engineapi.Image{img("a", markOf(ourNode, 8*day, "a:1"))}, week, false, []string{
			"a: unused for 8 days: " + markOf(ourNode, 8*day, "a:1"),
		}},
		{"whose tag has moved on, and left its digest", []engineapi.Image{{
			ID: "a", Size: gib, Tags: []string{markOf(ourNode, 8*day, "r/a:1")}, Digests: []string{"r/a@sha256:" + strings.Repeat("0", 64)},
		}}, week, false, []string{"a: unused for 8 days: r/a@sha256:" + strings.Repeat("0", 64) + " " + markOf(ourNode, 8*day, "r/a:1")}},
		{"of two nodes", []engineapi.Image{img("a", "a:1", "b:1", markOf(ourNode, 8*day, "a:1"), markOf(ourNode, 8*day, "b:1"), markOf(otherNode, day, "a:1"))}, week, false, []string{
			"a: unused for 8 days: b:1 " + markOf(ourNode, 8*day, "a:1") + " " + markOf(ourNode, 8*day, "b:1"),
		}},
		{"written in full", []engineapi.Image{img("a", "docker.io/library/a:1", markOf(ourNode, 8*day, "a:1"))}, week, false, []string{
			"a: unused for 8 days: docker.io/library/a:1 " + markOf(ourNode, 8*day, "a:1"),
		}},
	} {
		var all []held
		for _, i := range c.images {
			id, inUse := strings.CutSuffix(plainID(i.ID), "!")
			h := readImage(i, ourNode, map[string]bool{plainID(i.ID): inUse})
			h.id = id
			all = append(all, h)
		}
		var got []string
		for _, r := range collectable(all, c.bounds, evening, c.pressing) {
			got = append(got, r.id+": "+r.why+": "+strings.Join(r.refs(), " "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// An image that was pulled by its digest has no tag; one engine lists the digest with the tags, the other does not.
func TestImageByDigest(t *testing.T) {
	ref := "r:5000/a@sha256:" + strings.Repeat("0", 64)
	m := markOf(ourNode, 0, ref)
	for _, i := range []engineapi.Image{
		{Tags: []string{m}, Digests: []string{ref}},
		{Tags: []string{ref, m}, Digests: []string{ref, markName(ourNode) + "@sha256:" + strings.Repeat("0", 64)}},
	} {
		h := readImage(i, ourNode, nil)
		if h.foreign() || !slices.Equal(h.refs(), []string{ref, m}) {
			t.Errorf("%+v: %v %q", i, h.foreign(), h.refs())
		}
	}
}

func TestImageBounds(t *testing.T) {
	for text, want := range map[string]time.Duration{"": defaultImageAge, "off": 0, "2d": 48 * time.Hour, "36h": 36 * time.Hour, "120m": 2 * time.Hour} {
		if got, err := imageAge(text); got != want || err != nil {
			t.Errorf("%q: %s %v", text, got, err)
		}
	}
	for _, bad := range []string{"1h", "0", "d", "7", "-7d", "x", "99999999d", "1e9d", "999999d"} {
		if got, err := imageAge(bad); err == nil {
			t.Errorf("%q is %s", bad, got)
		}
	}
	for _, c := range []struct {
		options backend.Options
		want    bounds
		off     bool
	}{
		{nil, bounds{age: defaultImageAge}, false},
		{backend.Options{keyImageAge: "off"}, bounds{}, true},
		{backend.Options{keyImageAge: "off", keyImageSize: "20g"}, bounds{size: 20 << 30}, false},
	} {
		if got := boundsOf(c.options); got != c.want || got.off() != c.off {
			t.Errorf("%v: %+v", c.options, got)
		}
	}
}
