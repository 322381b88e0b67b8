package container

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

const agent1 = "scaler-container-00000001"

// What a container is made of can be seen by whoever uses the engine: limits and labels are there (CT-13…15), the token is not (D13).
func TestLimitsAndLabelsAreVisibleAndTheTokenIsNot(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		r.environ = []string{"KICI_AGENT_ENV_PROXY=p", "SECRET=x"}
		r.env["OWN"] = "1"
		b := r.backend("one")
		s := r.spec(agent1)
		s.Limits, s.JobID, s.RunID = ci.Resources{CPUMilli: 500, MemBytes: 64 << 20}, "job-1", "run-1"
		r.create(b, s)
		r.eventually("the agent has its token", func() bool { return strings.Contains(r.output(agent1), "token of 10 characters, uid 0") })
		in := r.inspect(agent1)
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), testToken) || strings.Contains(string(text), "SECRET") {
			t.Errorf("inspect shows a secret: %s", text)
		}
		h := in.HostConfig
		if h.Memory != 64<<20 || h.MemorySwap != 64<<20 || h.NanoCPUs != 5e8 || h.PidsLimit == nil || *h.PidsLimit != pidsLimit || h.AutoRemove {
			t.Errorf("limits: memory %d, swap %d, cpu %d, pids %v", h.Memory, h.MemorySwap, h.NanoCPUs, h.PidsLimit)
		}
		want := map[string]string{
			labelManaged: "true", labelScaler: "one", labelAgent: agent1, labelLabels: "linux", labelJob: "job-1", labelRun: "run-1",
			labelInstance: r.node, labelCluster: "test",
		}
		for k, v := range want {
			if in.Config.Labels[k] != v {
				t.Errorf("label %s is %q, want %q", k, in.Config.Labels[k], v)
			}
		}
		for _, v := range []string{"OWN=1", "PROXY=p", "KICI_AGENT_ID=" + agent1, "KICI_ORCHESTRATOR_URL=unix:///.kici/server/kici.sock", "KICI_RUNTIME_IMAGE=" + enginetest.Busybox} {
			if !slices.Contains(in.Config.Env, v) {
				t.Errorf("the environment lacks %s", v)
			}
		}
	})
}

// An agent that dies is told about at once, with how and with its last words (CT-22, XS-27).
func TestXS27ContainerExitsBeforeRegistering(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		r.env["HELPER"] = "die"
		b := r.backend("one")
		r.listening(b)
		r.create(b, r.spec(agent1))
		r.hinted(b, agent1)
		inst := r.dead(b, agent1)
		if inst.Unstarted || inst.Detail != "exited with 3" || len(inst.Tail) != maxTailLines || inst.Tail[maxTailLines-1] != "line 99" {
			t.Errorf("%+v", inst)
		}
	})
}

// listening waits until the backend hears the engine's events: the first hint says so.
func (r *rig) listening(b *Backend) { r.hinted(b, "") }

func (r *rig) hinted(b *Backend, agent string) {
	r.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case id := <-b.Exits():
			if id == agent {
				return
			}
		case <-timeout:
			r.t.Fatalf("no hint of %q came", agent)
		}
	}
}

func TestOutOfMemoryIsNamed(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		r.env["HELPER"] = "greedy"
		b := r.backend("one")
		s := r.spec(agent1)
		s.Limits.MemBytes = 48 << 20
		r.create(b, s)
		inst := r.dead(b, agent1)
		if !strings.Contains(inst.Detail, "out of memory") || !strings.Contains(inst.Detail, "(limit 48 MiB)") {
			t.Errorf("%+v", inst)
		}
	})
}

// "docker rm -f" of a running agent: the loop hears of it, finds nothing, and Delete has nothing to do.
func TestContainerRemovedFromOutside(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		b := r.backend("one")
		r.listening(b)
		r.create(b, r.spec(agent1))
		if _, err := e.API.ContainerRemove(r.ctx(), containerName(agent1), client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		r.hinted(b, agent1)
		if inst, ok := r.list(b, agent1); ok && inst.Running {
			t.Errorf("listed as %+v", inst)
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1}); err != nil && !errors.Is(err, backend.ErrNotFound) {
			t.Error(err)
		}
	})
}

// An image's own user is kept: it can work, though kici's folders are not in the image.
func TestImageWithAnotherUserAndCommand(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		const image = "localhost/kici-other:1"
		e.Import(t, image, "USER other", `ENTRYPOINT ["/bin/false"]`, `CMD ["x"]`, "WORKDIR /nowhere", "ENV FROM_IMAGE=1")
		r.set[keyImage] = image
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.eventually("the agent works", func() bool { return strings.Contains(r.output(agent1), "uid 1000") })
		if inst, ok := r.list(b, agent1); !ok || !inst.Running {
			t.Errorf("%+v: %s", inst, r.output(agent1))
		}
	})
}

// An image with nothing in it is enough.
func TestEmptyImage(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		const image = "localhost/kici-empty:1"
		e.ImportTar(t, image, make([]byte, 1024))
		r.set[keyImage] = image
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.eventually("the agent works", func() bool { return strings.Contains(r.output(agent1), "token of") })
	})
}

// The program of a server that nobody else may read is copied to where containers can execute it.
func TestProgramThatOthersMayNotExecute(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		private := r.dir + "/private"
		data, err := os.ReadFile(r.program)
		if err == nil {
			err = os.WriteFile(private, data, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.program = private
		const image = "localhost/kici-other:2"
		e.Import(t, image, "USER other")
		r.set[keyImage] = image
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.eventually("the agent works", func() bool { return strings.Contains(r.output(agent1), "uid 1000") })
	})
}

// XS-79: what is not ours is neither listed nor ended: another scaler's, another server's, and what is nobody's.
func TestXS79NeighboursAreSpared(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		other := newRig(t, e)
		mine, sibling, stranger := r.backend("one"), r.backend("two"), other.backend("one")
		r.create(mine, r.spec(agent1))
		r.create(sibling, r.spec("scaler-container-00000002"))
		other.create(stranger, other.spec("scaler-container-00000003"))
		free := r.foreign("scaler-container-00000004", nil)
		copied := r.foreign("whatever", r.inspect(agent1).Config.Labels)
		all, err := mine.List(r.ctx())
		if err != nil || len(all) != 1 || all[0].AgentID != agent1 {
			t.Fatalf("listed %+v, %v", all, err)
		}
		for _, id := range []string{"scaler-container-00000002", "scaler-container-00000003", "scaler-container-00000004"} {
			if err := mine.Delete(r.ctx(), backend.Ref{AgentID: id}); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("delete of %s: %v", id, err)
			}
		}
		if _, err := mine.Create(r.ctx(), r.spec("scaler-container-00000004")); !errors.Is(err, backend.ErrInfra) || !strings.Contains(err.Error(), "not this scaler's") {
			t.Errorf("create over a stranger's container: %v", err)
		}
		for _, id := range []string{free, copied} {
			if in, err := e.API.ContainerInspect(r.ctx(), id, client.ContainerInspectOptions{}); err != nil || !in.Container.State.Running {
				t.Errorf("a stranger's container was ended: %v", err)
			}
		}
	})
}

// foreign starts a container that is not kici's, whatever its labels say.
func (r *rig) foreign(name string, labels map[string]string) string {
	r.t.Helper()
	made, err := r.e.API.ContainerCreate(r.ctx(), client.ContainerCreateOptions{
		Name: containerName(name), Config: &container.Config{Image: enginetest.Busybox, Cmd: []string{"/bin/sleep", "3600"}, Labels: labels},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_, err := r.e.API.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true})
		if err != nil {
			r.t.Error(err)
		}
	})
	if _, err := r.e.API.ContainerStart(r.ctx(), made.ID, client.ContainerStartOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return made.ID
}

// What cannot work again and again is refused with a sentence; what may work later is not (MG-18, MG-28).
func TestLaunchesThatAreRefused(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		for _, c := range []struct {
			name   string
			change func(*rig, *backend.Spec)
			want   error
			says   string
		}{
			{"an image that is not there, and never pulled", func(r *rig, _ *backend.Spec) { r.set[keyImage] = "localhost/none:1" }, backend.ErrRefused, "imagePullPolicy is Never"},
			{"no name of an image", func(_ *rig, s *backend.Spec) { s.Image = &backend.JobImage{Ref: "UPPER CASE"} }, backend.ErrRefused, "no name of an image"},
			{"no such label set", func(_ *rig, s *backend.Spec) { s.LabelSet = "gpu" }, backend.ErrRefused, "no label set [gpu]"},
			{"no way home", func(_ *rig, s *backend.Spec) { s.Socket = "" }, backend.ErrRefused, "set orchestratorUrl"},
			{"more memory than nothing", func(_ *rig, s *backend.Spec) { s.Limits.MemBytes = 1 << 10 }, backend.ErrRefused, ""},
			{"a volume that is not there", func(r *rig, _ *backend.Spec) { r.set[keyVolumes] = []string{"/proc/none/at/all:/data"} }, nil, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := newRig(t, e)
				s := r.spec(agent1)
				c.change(r, &s)
				b := r.backend("one")
				_, err := b.Create(r.ctx(), s)
				if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v", err)
				}
				t.Log(err)
				if left := r.left(agent1); len(left) > 0 {
					t.Errorf("left %v", left)
				}
			})
		}
	})
}

// A remote engine, and one whose files are not ours, get the agent's program as a copy.
func TestProgramIsCopiedWhereItCannotBeMounted(t *testing.T) {
	e := enginetest.Get(t, "docker")
	t.Run("an engine elsewhere", func(t *testing.T) {
		r := newRig(t, e)
		r.options = backend.Options{keyHost: e.TCP, keyIsolation: false}
		b := r.backend("one")
		s := r.spec(agent1)
		if _, err := b.Create(r.ctx(), s); !errors.Is(err, backend.ErrRefused) || !strings.Contains(err.Error(), "orchestratorUrl") {
			t.Errorf("a socket of this machine was offered: %v", err)
		}
		s.URL, s.Socket = "wss://ci.example.com/ws", ""
		r.create(b, s)
		r.eventually("the agent works", func() bool { return strings.Contains(r.output(agent1), "token of") })
		if c := b.Capabilities(); c.SpawnsOnHost || !slices.ContainsFunc(c.Protections, func(p string) bool { return strings.Contains(p, "without TLS") }) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("other files", func(t *testing.T) {
		r := newRig(t, e)
		if err := os.Symlink(r.program, r.dir+"/seen"); err != nil {
			t.Fatal(err)
		}
		t.Chdir(r.dir)
		r.program = "/proc/self/cwd/seen" // which is another folder for the engine
		b := r.backend("one")
		s := r.spec(agent1)
		s.URL, s.Socket = "wss://ci.example.com/ws", ""
		r.create(b, s)
		r.eventually("the agent works", func() bool { return strings.Contains(r.output(agent1), "token of") })
	})
}

// The engine keeps a bounded end of what an agent says.
func TestEndlessOutputIsBounded(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		r.env["HELPER"] = "chatty"
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		r.eventually("all was said", func() bool { return strings.HasSuffix(r.output(agent1), "the end") })
		path := r.inspect(agent1).LogPath
		if path == "" {
			t.Skip("this engine does not say where the log is")
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 8<<20 {
			t.Errorf("the log has %d bytes", info.Size())
		}
	})
}

// A retired scaler is known by name only; where its containers are was remembered.
func TestRetiringScalerFindsItsEngine(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		r.create(r.backend("one"), r.spec(agent1))
		b, err := open(backend.Entry{Name: "one", Retiring: true}, r.host(), facts{goos: "linux", getenv: func(string) string { return "" }, usable: func(string) error { return errors.New("none") }})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if inst, ok := r.list(b, agent1); !ok || !inst.Running {
			t.Errorf("%+v", inst)
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1}); err != nil {
			t.Error(err)
		}
	})
}

// The engine is restarted in mid-job: with live-restore (and always with Podman) containers go on, and hints come again.
func TestEngineRestarts(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := newRig(t, e)
		b := r.backend("one")
		r.listening(b)
		r.create(b, r.spec(agent1))
		if err := e.Stop(15); err != nil {
			t.Fatal(err)
		}
		if _, err := b.List(r.ctx()); err == nil {
			t.Error("a dead engine was listed")
		}
		if _, err := b.Create(r.ctx(), r.spec("scaler-container-00000002")); !errors.Is(err, backend.ErrNotReady) {
			t.Errorf("create: %v", err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		r.listening(b)
		if inst, ok := r.list(b, agent1); !ok || !inst.Running {
			t.Fatalf("%+v (%v)", inst, ok)
		}
		for len(b.Exits()) > 0 { // of attempts while the engine was away
			<-b.Exits()
		}
		r.kill(t, agent1)
		for timeout := time.After(20 * time.Second); ; {
			select {
			case <-b.Exits(): // of the agent, or of the stream that came after its death
			case <-timeout:
				t.Fatal("nothing told to look")
			}
			if inst, ok := r.list(b, agent1); ok && !inst.Running {
				return
			}
		}
	})
}
