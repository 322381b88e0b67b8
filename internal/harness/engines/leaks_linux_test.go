package engines

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	moby "github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
	"github.com/kici-go/kici/internal/scaler/hostnet"
)

// metric reads one value of /metrics.
func (w *world) metric(name string) string {
	w.t.Helper()
	resp, err := http.Get("http://127.0.0.1:" + w.port + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
	if m == nil {
		return "none"
	}
	return string(m[1])
}

// kici runs the program on the data directory.
func (w *world) kici(args ...string) string {
	w.t.Helper()
	path, err := program()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(path, append(args, "--data-dir", w.file("data"))...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Errorf("kici %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A container, a volume and a rule that nobody knows of are found by a running server, end, and are counted, beside a job that does not
// notice. What a dead server leaves, its network included, goes by hand.
func TestE2ELeaksAreHealedAndCounted(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newWorld(t, e, true)
		id := w.begun()
		real, err := e.API.ContainerInspect(t.Context(), w.containers()[0], moby.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node := real.Container.Config.Labels["kici-instance-id"]
		labels := func(agent string) map[string]string {
			out := map[string]string{}
			for _, k := range []string{"kici-managed", "kici-cluster", "kici-instance-id", "kici-scaler-name"} {
				out[k] = real.Container.Config.Labels[k]
			}
			out["kici-agent-id"] = agent
			return out
		}
		leak(t, e, "scaler-container-0000dead", labels("scaler-container-0000dead"))
		if _, err := e.API.VolumeCreate(t.Context(), moby.VolumeCreateOptions{Name: "kici-scaler-container-0000beef-0", Labels: labels("scaler-container-0000beef")}); err != nil {
			t.Fatal(err)
		}
		bridge := hostnet.Bridge{Name: bridgeName(t), Subnet: netip.MustParsePrefix("172.30.0.0/16"), Gateway: netip.MustParseAddr("172.30.0.1")}
		rules, err := hostnet.Open(hostnet.Options{Owner: node + "/box"})
		if err != nil {
			t.Fatal(err)
		}
		defer rules.Close()
		if err := rules.Apply(t.Context(), bridge, hostnet.Rules{Agent: "scaler-container-0000face", Addr: netip.MustParseAddr("172.30.77.7")}); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"container", "volume", "rule"} {
			for _, what := range []string{"found", "healed"} {
				name := fmt.Sprintf("kici_orch_scaler_leaks_%s_total{kind=%q}", what, kind)
				w.until(name, func() bool { return w.metric(name) == "1" })
			}
		}
		if n := len(w.containers()); n != 1 {
			t.Errorf("%d containers are left", n)
		}
		for _, kind := range []string{"process", "cgroup", "scope", "network", "token", "workspace"} {
			if got := w.metric(fmt.Sprintf("kici_orch_scaler_leaks_found_total{kind=%q}", kind)); got != "0" {
				t.Errorf("%s: %s", kind, got)
			}
		}
		w.write("shared/go", "")
		if d := w.ended(id); d.Status != "success" {
			t.Errorf("the job beside it: %s", show(d))
		}
		w.until("its agent is gone", func() bool { return len(w.containers()) == 0 })
		w.kill()
		leak(t, e, "scaler-container-0000dead", labels("scaler-container-0000dead"))
		if err := rules.Apply(t.Context(), bridge, hostnet.Rules{Agent: "scaler-container-0000face", Addr: netip.MustParseAddr("172.30.77.7")}); err != nil {
			t.Fatal(err)
		}
		if out := w.kici("scaler", "orphans", "list"); !strings.Contains(out, "scaler-container-0000dead") {
			t.Errorf("the list is %s", out)
		}
		if out := w.kici("admin", "scaler", "reap-orphans"); !strings.Contains(out, "ended 1") {
			t.Errorf("it said %s", out)
		}
		left, err := rules.List(t.Context())
		if err != nil || len(left) > 0 || len(w.containers()) > 0 {
			t.Errorf("left are rules %v (%v) and containers %v", left, err, w.containers())
		}
		networks, err := e.API.NetworkList(t.Context(), moby.NetworkListOptions{Filters: moby.Filters{}.Add("name", "kici-agent-net")})
		if err != nil || len(networks.Items) > 0 {
			t.Errorf("left are networks %v (%v)", networks.Items, err)
		}
	})
}

// leak starts a container that looks like an agent's.
func leak(t *testing.T, e *enginetest.Engine, agent string, labels map[string]string) {
	t.Helper()
	made, err := e.API.ContainerCreate(t.Context(), moby.ContainerCreateOptions{
		Name: "kici-" + agent, Config: &container.Config{Image: enginetest.Busybox, Cmd: []string{"/bin/sleep", "1000"}, Labels: labels},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = e.API.ContainerRemove(context.Background(), made.ID, moby.ContainerRemoveOptions{Force: true})
	})
	if _, err := e.API.ContainerStart(t.Context(), made.ID, moby.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bridgeName is the interface of the network of agents.
func bridgeName(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"kici-agents", "kici-podman"} {
		if _, err := net.InterfaceByName(name); err == nil {
			return name
		}
	}
	t.Fatal("the bridge of agents is not there")
	return ""
}
