package container

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// A mark is a tag of our own on an image that a scaler of this node pulled: which node, when the image was used last, and by which name it
// was pulled. It stands on the engine itself, so no file beside it can be wrong, and whoever lists images sees what is ours. An image
// without a mark was there before, or came by somebody else: it is never touched.
//
//	localhost/kici-image-0123456789ab:used-20261130-1905-0f1e2d3c4b5a

const (
	markPrefix = "localhost/kici-image-"
	markTime   = "20060102-1504"
	// nameKept stands for the name in the mark of an image whose name was somebody else's before: the image is ours, its name is not.
	nameKept = "kept"
)

// markEvery is how long a mark is good: an image that is used is marked anew when it is older.
const markEvery = time.Hour

type mark struct {
	ref  string // as the engine has it
	own  bool   // of this node
	used time.Time
	name string // hash of the name by which the image was pulled, or nameKept
}

// markName is the repository of a node's marks.
func markName(node string) string {
	node = strings.ToLower(strings.ReplaceAll(node, "-", ""))
	return markPrefix + node[max(0, len(node)-12):] // the random end of a UUIDv7
}

func markTag(used time.Time, name string) string {
	return "used-" + used.UTC().Format(markTime) + "-" + name
}

var markPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(` + regexp.QuoteMeta(markPrefix) + `[a-z0-9_.]{1,12}):used-(\d{8}-\d{4})-([0-9a-f]{12}|` + nameKept + `)$`)
})

// readMark reads a tag; ok is false for any other.
func readMark(ref, node string) (m mark, ok bool) {
	parts := markPattern().FindStringSubmatch(ref)
	if parts == nil {
		return m, false
	}
	used, err := time.Parse(markTime, parts[2])
	return mark{ref: ref, own: parts[1] == markName(node), used: used, name: parts[3]}, err == nil
}

// hashName is a name of an image in a mark: equal for all ways to write it.
func hashName(ref string) string {
	name, tag, err := nameAndTag(ref)
	if err != nil {
		return nameKept
	}
	sum := sha256.Sum256([]byte(name + " " + tag))
	return hex.EncodeToString(sum[:6])
}

// held is an image that the engine has.
type held struct {
	id    string
	size  int64
	marks []mark
	tags  []string // without marks
	names []string // tags, and digests of names, without marks
	inUse bool     // by any container
}

const noName = "<none>"

func readImage(i engineapi.Image, node string, used map[string]bool) held {
	h := held{id: plainID(i.ID), size: i.Size, inUse: used[plainID(i.ID)]}
	for n, ref := range slices.Concat(i.Tags, i.Digests) {
		m, ok := readMark(ref, node)
		switch {
		case ok:
			h.marks = append(h.marks, m)
		case strings.Contains(ref, noName), strings.HasPrefix(ref, markPrefix), slices.Contains(h.names, ref):
		default:
			h.names = append(h.names, ref)
			if n < len(i.Tags) {
				h.tags = append(h.tags, ref)
			}
		}
	}
	return h
}

// plainID is an image's id as both engines write it.
func plainID(id string) string { return strings.TrimPrefix(id, "sha256:") }

// lastUse is the newest of this node's marks; ours is false when there is none.
func (h held) lastUse() (used time.Time, ours bool) {
	for _, m := range h.marks {
		if m.own && (!ours || m.used.After(used)) {
			used, ours = m.used, true
		}
	}
	return used, ours
}

func (h held) marked(name string, own bool) bool {
	return slices.ContainsFunc(h.marks, func(m mark) bool { return m.own == own && m.name == name })
}

// shared reports whether another node uses an image, too.
func (h held) shared() bool { return slices.ContainsFunc(h.marks, func(m mark) bool { return !m.own }) }

// foreign reports whether an image has a tag that no kici made: somebody else wants it. Engines make digests by themselves.
func (h held) foreign() bool {
	return slices.ContainsFunc(h.tags, func(ref string) bool {
		name := hashName(ref)
		return !h.marked(name, true) && !h.marked(name, false)
	})
}

// refs are the names that go with an image, in the order in which they must: marks come last, so that what is interrupted goes on. Names
// that another node pulled the image by are left to it, and so is the digest that Docker keeps of a pull when its tag has moved on.
func (h held) refs() (out []string) {
	for _, ref := range h.names {
		name := hashName(ref)
		if h.marked(name, true) && !h.marked(name, false) || !h.shared() && h.tagless(ref) {
			out = append(out, ref)
		}
	}
	for _, m := range h.marks {
		if m.own {
			out = append(out, m.ref)
		}
	}
	return out
}

// tagless reports whether a name is a digest of a repository of which the image has no tag. Such a one goes with its tag.
func (h held) tagless(ref string) bool {
	repository, _, isDigest := strings.Cut(ref, "@")
	return isDigest && !slices.ContainsFunc(h.tags, func(tag string) bool { return strings.HasPrefix(tag, repository+":") })
}
