package container

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
	"github.com/kici-go/kici/internal/scaler/hostnet"
)

const voluminous = "localhost/kici-volumes:1"

// volumesLeft names what the engine has of volumes.
func (r *rig) volumesLeft() (names []string) {
	r.t.Helper()
	list, err := r.e.API.VolumeList(context.Background(), client.VolumeListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range list.Items {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}

// The volumes of an image go with their agent, also when somebody has removed its container without them, and when it was never made.
func TestVolumesGoWithTheirAgent(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		e.Import(t, voluminous, "VOLUME /data", "VOLUME /cache/deep", "VOLUME /mine")
		r.set[keyImage], r.set[keyVolumes] = voluminous, []string{t.TempDir() + ":/mine"}
		b := r.backend("one")
		before := r.volumesLeft()
		inst := r.create(b, r.spec(agent1))
		var got []string
		for _, v := range r.volumesLeft() {
			if !slices.Contains(before, v) {
				got = append(got, v)
			}
		}
		if want := []string{volumeName(agent1, 0), volumeName(agent1, 1)}; !slices.Equal(got, want) {
			t.Fatalf("its volumes are %v, want %v", got, want)
		}
		mounts := map[string]string{}
		for _, m := range r.inspect(agent1).Mounts {
			mounts[m.Destination] = string(m.Type)
		}
		if mounts["/data"] != "volume" || mounts["/cache/deep"] != "volume" || mounts["/mine"] != "bind" {
			t.Errorf("mounted: %v", mounts)
		}
		holds := []backend.Resource{backend.Container, backend.Volume, backend.Volume}
		if got, _ := r.list(b, agent1); !got.Running || !slices.Equal(got.Holds, holds) {
			t.Errorf("listed as %+v", got)
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1, Launch: inst.Launch}); err != nil {
			t.Fatal(err)
		}
		if left := r.volumesLeft(); !slices.Equal(left, before) {
			t.Errorf("after its end: %v, before: %v", left, before)
		}

		r.create(b, r.spec(agent1))
		if _, err := e.API.ContainerRemove(r.ctx(), containerName(agent1), client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		got2, ok := r.list(b, agent1)
		if !ok || got2.Running || !slices.Equal(got2.Holds, holds[1:]) {
			t.Errorf("without its container: %+v (%v)", got2, ok)
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1, Launch: got2.Launch}); err != nil {
			t.Errorf("delete of volumes alone: %v", err)
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1}); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
		if left := r.volumesLeft(); !slices.Equal(left, before) {
			t.Errorf("in the end: %v, before: %v", left, before)
		}

		spec := r.spec(agent1)
		spec.Limits.MemBytes = 1 // refused after the volumes are made
		if _, err := b.Create(r.ctx(), spec); err == nil {
			t.Error("it was made")
		}
		if left := r.volumesLeft(); !slices.Equal(left, before) {
			t.Errorf("after a failed start: %v, before: %v", left, before)
		}
	})
}

// Another scaler's volumes are left alone, as are those that only look like ours.
func TestVolumesOfNeighboursAreSpared(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		b, other := r.backend("one"), newRig(t, e).backend("one")
		if err := other.makeVolumes(r.ctx(), agent1, 1); err != nil {
			t.Fatal(err)
		}
		labels := ourLabels(b.host, b.scaler)
		labels[labelAgent] = "scaler-container-0000beef"
		const alien = "somebodys-own"
		if _, err := e.API.VolumeCreate(r.ctx(), client.VolumeCreateOptions{Name: alien, Labels: labels}); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = e.API.VolumeRemove(context.Background(), alien, client.VolumeRemoveOptions{}) }()
		if all, err := b.List(r.ctx()); err != nil || len(all) > 0 {
			t.Errorf("listed %+v, %v", all, err)
		}
		if all, err := other.List(r.ctx()); err != nil || len(all) != 1 || !all[0].Unstarted {
			t.Errorf("the other lists %+v, %v", all, err)
		}
	})
}

// Rules of an agent without a container are found and go, and are counted; those of an agent that has just ended in the ordinary way are
// not.
func TestRulesWithoutAContainerAreCounted(t *testing.T) {
	r := isolating(t, enginetest.Get(t, "docker"))
	leaks := new(backend.Leaks)
	host := r.host()
	host.Leaks = leaks
	b, err := open(r.entry("one"), host, realFacts())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Prepare(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.create(b, r.spec(agent1))
	if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1}); err != nil {
		t.Fatal(err)
	}
	r.list(b, agent1)
	if found, healed := leaks.Counts(backend.Rule); found != 0 || healed != 0 {
		t.Errorf("an ordinary end: found %d healed %d", found, healed)
	}
	stray := hostnet.Rules{Agent: "scaler-container-0000dead", Addr: netip.MustParseAddr("172.30.0.98")}
	if err := b.rules.Apply(r.ctx(), b.network, stray); err != nil {
		t.Fatal(err)
	}
	r.list(b, agent1)
	if found, healed := leaks.Counts(backend.Rule); found != 1 || healed != 1 || len(r.ruled(b)) > 0 {
		t.Errorf("found %d healed %d, left %v", found, healed, r.ruled(b))
	}
}

// A network that somebody removes while the server runs is made again by the next launch, and one that nobody uses goes with a sweep.
func TestNetworkIsMadeAgainAndSwept(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := isolating(t, e)
		leaks := new(backend.Leaks)
		b := r.backend("one")
		b.host.Leaks = leaks
		r.removeNetwork()
		r.create(b, r.spec(agent1))
		if have := r.ruled(b); !slices.Equal(have, []string{agent1}) {
			t.Errorf("rules of %v", have)
		}
		if err := b.Sweep(r.ctx()); err != nil {
			t.Errorf("sweep while it is used: %v", err)
		}
		if !strings.HasPrefix(r.inspect(agent1).NetworkSettings.Networks[networkName].IPAddress.String(), "172.30.") {
			t.Error("the sweep took the network of a running agent")
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1}); err != nil {
			t.Fatal(err)
		}
		stray := hostnet.Rules{Agent: "scaler-container-0000dead", Addr: netip.MustParseAddr("172.30.0.97")}
		if err := b.rules.Apply(r.ctx(), b.network, stray); err != nil {
			t.Fatal(err)
		}
		if err := b.Sweep(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if _, found, err := b.findNetwork(r.ctx()); found || err != nil {
			t.Errorf("the network is there: %v %v", found, err)
		}
		for _, kind := range []backend.Resource{backend.Network, backend.Rule} {
			if found, healed := leaks.Counts(kind); found != 1 || healed != 1 {
				t.Errorf("%s: found %d healed %d", kind, found, healed)
			}
		}
		if err := b.Sweep(r.ctx()); err != nil {
			t.Errorf("sweep of nothing: %v", err)
		}
	})
}
