package container

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
	"github.com/kici-go/kici/internal/service"
)

const day = 24 * time.Hour

// images are the engine's, but for those that tests import: "name,name".
func (r *rig) images() (out []string) {
	r.t.Helper()
	api, err := engineapi.New("unix://"+r.e.Socket, "")
	if err != nil {
		r.t.Fatal(err)
	}
	defer api.Close()
	all, err := api.Images(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range all {
		var names []string
		for _, ref := range i.Tags {
			if m, ok := readMark(ref, r.node); ok && m.own {
				ref = "mark " + m.name[:4]
			}
			imported := strings.HasPrefix(ref, "localhost/kici-") && !strings.HasPrefix(ref, markPrefix) // by other tests
			if !strings.Contains(ref, noName) && ref != enginetest.Busybox && !imported {
				names = append(names, ref)
			}
		}
		if slices.Sort(names); names != nil {
			out = append(out, strings.Join(names, ","))
		}
	}
	slices.Sort(out)
	return out
}

// unmark removes the marks that a test has left.
func (r *rig) unmark() {
	list, err := r.e.API.ImageList(context.Background(), client.ImageListOptions{})
	if err != nil {
		r.t.Error(err)
	}
	for _, i := range list.Items {
		for _, ref := range i.RepoTags {
			if !strings.HasPrefix(ref, markPrefix) {
				continue
			}
			if _, err := r.e.API.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{}); err != nil {
				r.t.Log(err)
			}
		}
	}
}

func (r *rig) want(what string, images ...string) {
	r.t.Helper()
	if got := r.images(); !slices.Equal(got, images) {
		r.t.Fatalf("%s: the engine has %q, want %q", what, got, images)
	}
}

func (r *rig) collect(b *Backend, c backend.Collect) (names []string) {
	r.t.Helper()
	things, err := b.Collect(r.ctx(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range things {
		if x.Kind != backend.CollectedImage || x.Bytes <= 0 || x.Why == "" {
			r.t.Errorf("%+v", x)
		}
		names = append(names, x.Name)
	}
	return names
}

func (r *rig) end(b *Backend, id string) {
	r.t.Helper()
	if err := b.Delete(r.ctx(), backend.Ref{AgentID: id, Grace: time.Second}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tag(image, name string) {
	r.t.Helper()
	if _, err := r.e.API.ImageTag(r.ctx(), client.ImageTagOptions{Source: image, Target: name}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) untag(name string) {
	r.t.Helper()
	if _, err := r.e.API.ImageRemove(r.ctx(), name, client.ImageRemoveOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// marked is what the engine has of an image that was pulled by a name.
func marked(ref string) string { return ref + ",mark " + hashName(ref)[:4] }

// An image that kici pulled goes when it has been unused for its age, and not while a container uses it, or somebody has given it a name.
func TestPulledImageIsCollected(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "age")
		ref := reg.Ref("age")
		b := r.backend("one")
		r.want("before")
		r.create(b, r.spec(agent1))
		r.want("pulled", marked(ref))
		r.ahead.Store(int64(8 * day))
		if got := r.collect(b, backend.Collect{}); got != nil {
			t.Errorf("in use, it was removed: %q", got)
		}
		r.want("in use", marked(ref))
		r.end(b, agent1)
		r.ahead.Store(int64(14 * day)) // it was in use on the eighth
		if got := r.collect(b, backend.Collect{}); got != nil {
			t.Errorf("it was removed too early: %q", got)
		}
		r.ahead.Store(int64(16 * day))
		r.tag(ref, "localhost/mine:1")
		if got := r.collect(b, backend.Collect{}); got != nil {
			t.Errorf("somebody's was removed: %q", got)
		}
		r.want("somebody's as well", ref+",localhost/mine:1,mark "+hashName(ref)[:4])
		r.untag("localhost/mine:1")
		if got := r.collect(b, backend.Collect{}); !slices.Equal(got, []string{ref}) {
			t.Errorf("removed %q", got)
		}
		r.want("after")
		r.create(b, r.spec(agent1)) // and it can be had again
		r.want("pulled again", marked(ref))
	})
}

// What was on the engine before is never marked, and never removed, however it is used.
func TestImagesOfOthersAreSpared(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "theirs")
		ref := reg.Ref("theirs")
		r.set[keyImage] = enginetest.Busybox
		b := r.backend("one")
		s := r.spec(agent1)
		s.Image = &backend.JobImage{Ref: ref}
		id := r.pullAsSomebody(ref)
		r.want("theirs", ref)
		for _, policy := range []string{pullMissing, pullAlways} {
			r.set[keyImage], r.set[keyPull] = ref, policy
			always, err := b.Reload(r.entry("one"))
			if err != nil {
				t.Fatal(err)
			}
			r.create(always.(*Backend), r.spec(agent1))
			r.end(b, agent1)
			r.want("used with "+policy, ref)
		}
		r.create(b, s)
		r.end(b, agent1)
		r.ahead.Store(int64(99 * day))
		if got := r.collect(b, backend.Collect{Full: func() bool { return true }, Folder: r.e.Root()}); got != nil {
			t.Errorf("removed %q", got)
		}
		r.want("spared", ref)
		_ = id
	})
}

func (r *rig) pullAsSomebody(ref string) string {
	r.t.Helper()
	b, err := open(r.entry("somebody"), r.host(), realFacts())
	if err != nil {
		r.t.Fatal(err)
	}
	defer b.Close()
	in, err := b.haveImage(r.ctx(), wanted{ref: ref, policy: pullMissing})
	if err != nil {
		r.t.Fatal(err)
	}
	return in.ID
}

// A name that was somebody's before keeps being theirs when kici pulls a newer image under it; the image goes when the name has moved on.
func TestNameOfOthersIsSpared(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "moving")
		ref := reg.Ref("moving")
		r.set[keyPull] = pullAlways
		b := r.backend("one")
		r.tag(enginetest.Busybox, ref) // an older image
		r.create(b, r.spec(agent1))
		r.end(b, agent1)
		r.want("pulled over it", ref+",mark kept")
		r.ahead.Store(int64(8 * day))
		if got := r.collect(b, backend.Collect{Full: func() bool { return true }, Folder: r.e.Root()}); got != nil {
			t.Errorf("removed %q", got)
		}
		r.tag(enginetest.Busybox, ref)
		r.want("moved on", ref, "mark kept")
		if got := r.collect(b, backend.Collect{}); len(got) != 1 {
			t.Errorf("removed %q", got)
		}
		r.want("after", ref)
	})
}

// A use renews the mark, at most once an hour; one of two nodes leaves the image to the other.
func TestMarkIsRenewed(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "renewed")
		ref := reg.Ref("renewed")
		b := r.backend("one")
		use := func(b *Backend, ahead time.Duration) string {
			r.ahead.Store(int64(ahead))
			r.create(b, r.spec(agent1))
			r.end(b, agent1)
			in, err := b.api.InspectImage(r.ctx(), ref)
			if err != nil {
				t.Fatal(err)
			}
			var marks []string
			for _, m := range b.inspected(in).marks {
				if m.own {
					marks = append(marks, m.ref)
				}
			}
			return strings.Join(marks, " ")
		}
		first := use(b, 0)
		if again := use(b, 50*time.Minute); again != first {
			t.Errorf("within the hour %q became %q", first, again)
		}
		later := use(b, 70*time.Minute)
		if later == first || strings.Contains(later, " ") {
			t.Errorf("after an hour %q became %q", first, later)
		}
		ours := r.node
		r.node = "node-other"
		other := r.backend("one")
		if got := use(other, 0); got != "" {
			t.Errorf("another node marked what was there: %q", got)
		}
		r.tag(ref, markName(r.node)+":"+markTag(time.Now(), hashName(ref))) // as if both had pulled at once
		r.node = ours
		r.ahead.Store(int64(9 * day))
		if got := r.collect(b, backend.Collect{}); got != nil {
			t.Errorf("removed %q", got)
		}
		in, err := b.api.InspectImage(r.ctx(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if h := b.inspected(in); len(h.marks) != 1 || h.marks[0].own {
			t.Errorf("marks %+v", h.marks)
		}
		r.node = "node-other"
		if got := r.collect(other, backend.Collect{}); !slices.Equal(got, []string{ref}) {
			t.Errorf("the other removed %q", got)
		}
		r.node = ours
		r.want("after")
	})
}

func TestImageByDigestIsCollected(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "digest")
		ref, _, _ := strings.Cut(reg.Ref("digest"), ":digest")
		ref += "@" + reg.Digest()
		r.set[keyImage] = ref
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.end(b, agent1)
		r.ahead.Store(int64(8 * day))
		if got := r.collect(b, backend.Collect{}); !slices.Equal(got, []string{ref}) {
			t.Errorf("removed %q", got)
		}
		if _, err := b.api.InspectImage(r.ctx(), ref); !noImage(err) {
			t.Errorf("it is still there: %v", err)
		}
		r.want("after")
	})
}

func TestImagesAreKeptWhenCollectingIsOff(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "off")
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.end(b, agent1)
		r.options = maps.Clone(r.options)
		r.options[keyImageAge] = imageOff
		off, err := b.Reload(r.entry("one"))
		if err != nil {
			t.Fatal(err)
		}
		r.ahead.Store(int64(99 * day))
		if got := r.collect(off.(*Backend), backend.Collect{Full: func() bool { return true }, Folder: r.e.Root()}); got != nil {
			t.Errorf("removed %q", got)
		}
		r.untag(reg.Ref("off"))
		for _, m := range r.images() {
			if !strings.HasPrefix(m, "mark ") {
				t.Error(m)
			}
		}
		if got := r.collect(b, backend.Collect{}); len(got) != 1 {
			t.Errorf("switched on again it removed %q", got)
		}
		r.create(off.(*Backend), r.spec(agent1))
		r.want("not marked", reg.Ref("off"))
	})
}

// An image that goes between the look at it and the container that needs it is pulled again.
func TestImageGoesMeanwhile(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r, reg := pulling(t, e, "meanwhile")
		ref := reg.Ref("meanwhile")
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.end(b, agent1)
		pulls, removed := reg.Pulls(), false
		r.onNow = func() { // the mark is looked at when the image has been found
			if !removed {
				removed = true
				r.untag(ref)
			}
		}
		r.create(b, r.spec(agent1))
		if !removed || reg.Pulls() == pulls {
			t.Errorf("removed %v, %d pulls more", removed, reg.Pulls()-pulls)
		}
	})
}

// A disk that is full of unused images has room again, and no more of them go than it takes.
func TestFullDiskIsClearedOfImages(t *testing.T) {
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.OnSmallDisk(t, name, "96m", enginetest.Apart)
			r, reg := pulling(t, e, "small")
			b := r.backend("one")
			folder := b.Capabilities().Volume
			if folder != e.Root() {
				t.Fatalf("the volume is %q", folder)
			}
			for i := range 3 { // images that differ, as if kici had pulled each
				ref := fmt.Sprintf("localhost/big%d:1", i)
				rootfs, err := enginetest.Noise(16<<20 + int64(i))
				if err != nil {
					t.Fatal(err)
				}
				e.ImportTar(t, ref, rootfs)
				r.tag(ref, markName(r.node)+":"+markTag(time.Now().Add(-time.Duration(9-i)*time.Hour), hashName(ref)))
			}
			free := func() int64 {
				n, err := service.FreeDisk(folder)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			start := free()
			if err := os.WriteFile(filepath.Join(folder, "ballast"), make([]byte, start-4<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			before := free()
			if got := r.collect(b, backend.Collect{Full: func() bool { return true }, Folder: r.dir}); got != nil {
				t.Errorf("for another disk it removed %q", got)
			}
			b.mu.Lock()
			b.root = "" // as before it is prepared
			b.mu.Unlock()
			got := r.collect(b, backend.Collect{Full: func() bool { return free() < 24<<20 }, Folder: folder})
			if !slices.Equal(got, []string{"localhost/big0:1", "localhost/big1:1"}) || before > 8<<20 || free() < 24<<20 {
				t.Errorf("removed %q: %d MiB were free, %d are", got, before>>20, free()>>20)
			}
			_ = os.Remove(filepath.Join(folder, "ballast"))
			_ = reg
		})
	}
}
