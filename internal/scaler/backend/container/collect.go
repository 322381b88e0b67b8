package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/moby/moby/api/types/image"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/service"
)

// Bounds of images.
const (
	defaultImageAge = 7 * 24 * time.Hour
	minImageAge     = 2 * time.Hour // marks are good to the hour
	maxImageAge     = 10 * 365 * 24 * time.Hour
	imageOff        = "off"
	// justUsed is for how long an image is spared for sure: it was pulled, and its container is being made.
	justUsed = 5 * time.Minute
)

// bounds are what pulled images must keep within.
type bounds struct {
	age  time.Duration // 0: for ever
	size int64         // 0: any
}

func (b bounds) off() bool { return b == bounds{} }

// boundsOf reads an entry that was checked.
func boundsOf(o backend.Options) bounds {
	b := bounds{}
	b.age, _ = imageAge(o.String(keyImageAge))
	b.size, _ = imageSize(o.String(keyImageSize))
	return b
}

func imageAge(text string) (time.Duration, error) {
	switch text {
	case "":
		return defaultImageAge, nil
	case imageOff:
		return 0, nil
	}
	plain, unit := text, time.Duration(1)
	if t, ok := strings.CutSuffix(text, "d"); ok {
		plain, unit = t+"h", 24
	}
	age, err := time.ParseDuration(plain)
	if age = min(age, maxImageAge) * unit; err != nil || age < minImageAge || age > maxImageAge {
		return 0, fmt.Errorf("%.50q must be a time such as 7d or 36h, at least %s, or %s", text, "2h", imageOff)
	}
	return age, nil
}

func imageSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return ci.ParseMemory(text)
}

// removal is an image that goes, and why.
type removal struct {
	held
	why string
}

// collectable decides which of the engine's images go, the longest unused first. It is pure. pressing: the disk is too full, and all that
// nobody uses may go.
func collectable(images []held, b bounds, now time.Time, pressing bool) (out []removal) {
	type candidate struct {
		held
		used time.Time
	}
	var all []candidate
	total := int64(0)
	for _, h := range images {
		used, ours := h.lastUse()
		if !ours {
			continue
		}
		total += h.size
		if !h.inUse && !h.foreign() && now.Sub(used) >= justUsed {
			all = append(all, candidate{h, used})
		}
	}
	slices.SortStableFunc(all, func(x, y candidate) int { return cmp.Or(x.used.Compare(y.used), cmp.Compare(x.id, y.id)) })
	for _, c := range all {
		unused := now.Sub(c.used)
		var why string
		switch {
		case b.age > 0 && unused >= b.age:
			why = "unused for " + long(unused)
		case b.size > 0 && total > b.size:
			why = fmt.Sprintf("pulled images take %s together, more than imageMaxSize", humanize.IBytes(uint64(total)))
		case pressing:
			why = "unused for " + long(unused) + ", and the disk is full"
		default:
			continue
		}
		total -= c.size
		out = append(out, removal{c.held, why})
	}
	return out
}

// long is a time for people.
func long(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

// Collect implements backend.Collector: images that a scaler of this node pulled, and that are not used any more; and interrupted copies of
// the program.
func (b *Backend) Collect(ctx context.Context, c backend.Collect) ([]backend.Collected, error) {
	out, err := backend.CollectParts(filepath.Join(b.host.Dir, programFolder), b.host.Now())
	errs := []error{err}
	limit := boundsOf(b.entry.Options)
	if b.entry.Retiring || limit.off() || c.Full != nil && !service.SameDisk(b.disk(ctx), c.Folder) {
		return out, err
	}
	images, err := b.images(ctx)
	if err != nil {
		return out, errors.Join(append(errs, err)...)
	}
	for _, r := range collectable(images, limit, b.host.Now(), c.Full != nil) {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if c.Full != nil && !c.Full() {
			break
		}
		switch gone, err := b.removeImage(ctx, r.held); {
		case err != nil:
			errs = append(errs, fmt.Errorf("remove image %s: %w", r.title(), err))
		case gone:
			out = append(out, backend.Collected{Kind: backend.CollectedImage, Name: r.title(), Bytes: r.size, Why: r.why})
		}
	}
	b.renewUsed(ctx, images)
	return out, errors.Join(errs...)
}

// disk is the folder of the engine's images, also of one that was not prepared.
func (b *Backend) disk(ctx context.Context) string {
	b.mu.Lock()
	copied, root := b.copied, b.root
	b.mu.Unlock()
	switch {
	case copied:
		return ""
	case root == "":
		return b.findRoot(ctx)
	}
	return root
}

// title is an image's name for people.
func (h held) title() string {
	for _, ref := range h.names {
		return ref
	}
	return h.id[:min(12, len(h.id))]
}

// images lists what the engine has.
func (g *engine) images(ctx context.Context) ([]held, error) {
	all, err := g.api.Images(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images of %s: %w", g.at, err)
	}
	if !slices.ContainsFunc(all, func(i engineapi.Image) bool { _, ours := readImage(i, g.host.NodeID, nil).lastUse(); return ours }) {
		return nil, nil
	}
	containers, err := g.api.List(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers of %s: %w", g.at, err)
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[plainID(c.ImageID)] = true
	}
	out := make([]held, len(all))
	for i, img := range all {
		out[i] = readImage(img, g.host.NodeID, used)
	}
	return out, nil
}

// removeImage takes our names from an image; with the last one it goes. One that a container uses after all stays, with its mark.
func (g *engine) removeImage(ctx context.Context, h held) (gone bool, err error) {
	for _, ref := range h.refs() {
		err := g.api.RemoveImage(ctx, ref)
		switch {
		case err == nil, noImage(err):
		case engineapi.IsStatus(err, http.StatusConflict), strings.Contains(err.Error(), "in use"):
			return false, nil
		default:
			return false, err
		}
	}
	return !h.shared(), nil // else another node goes on using it
}

func noImage(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "image not known") || strings.Contains(err.Error(), "o such image"))
}

// renewUsed marks images that containers use now: they count as unused from the end of these.
func (g *engine) renewUsed(ctx context.Context, images []held) {
	for _, h := range images {
		if h.inUse {
			g.renew(ctx, h)
		}
	}
}

// renew marks an image as used now, unless that was done a short time ago, or it is not ours. That it fails is no failure of a launch.
func (g *engine) renew(ctx context.Context, h held) {
	now := g.host.Now()
	used, ours := h.lastUse()
	if !ours || now.Sub(used) < markEvery {
		return
	}
	for _, m := range h.marks {
		if !m.own {
			continue
		}
		err := g.api.Tag(ctx, h.id, markName(g.host.NodeID), markTag(now, m.name))
		if err == nil {
			err = g.api.RemoveImage(ctx, m.ref)
		}
		if err != nil && !noImage(err) {
			g.log.Warn("mark an image as used", "image", h.title(), "err", err)
		}
	}
}

// before is what was known of an image's name and of all images before a pull.
type before struct {
	ids   map[string]bool
	image held // by that name; zero when there was none
	known bool
}

// lookBefore looks at what is there before an image is pulled: what was there is not ours.
func (g *engine) lookBefore(ctx context.Context, ref string) (b before) {
	all, err := g.api.Images(ctx)
	if err != nil {
		g.log.Warn("list images before a pull: what is pulled now is never removed", "err", err)
		return b
	}
	b.known, b.ids = true, map[string]bool{}
	for _, i := range all {
		b.ids[plainID(i.ID)] = true
	}
	switch in, err := g.api.InspectImage(ctx, ref); {
	case err == nil:
		b.image = g.inspected(in)
	case !noImage(err) && !engineapi.IsStatus(err, http.StatusNotFound):
		b.known = false
	}
	return b
}

func (g *engine) inspected(in image.InspectResponse) held {
	return readImage(engineapi.Image{ID: in.ID, Tags: in.RepoTags, Digests: in.RepoDigests, Size: in.Size}, g.host.NodeID, nil)
}

// markPulled marks an image that was pulled, if it was not there before.
func (g *engine) markPulled(ctx context.Context, ref string, in image.InspectResponse, was before) {
	now := g.inspected(in)
	if _, ours := now.lastUse(); ours {
		g.renew(ctx, now)
		return
	}
	if !was.known || was.ids[now.id] {
		return
	}
	if err := g.api.Tag(ctx, in.ID, markName(g.host.NodeID), markTag(g.host.Now(), nameFor(ref, was.image))); err != nil {
		g.log.Warn("mark a pulled image: it is never removed", "image", ref, "err", err)
	}
}

// nameFor is what the mark of an image says of its name: a name that was somebody's image before stays theirs.
func nameFor(ref string, was held) string {
	name := hashName(ref)
	if was.id != "" && !was.marked(name, true) && !was.marked(name, false) {
		return nameKept
	}
	return name
}

var _ backend.Collector = (*Backend)(nil)
