package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
	"github.com/kici-go/kici/internal/scaler/hostnet"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// isolating is a rig whose agents are isolated. Its network goes with the test, as both engines would have the same subnet.
func isolating(t *testing.T, e *enginetest.Engine) *rig {
	t.Helper()
	r := newRig(t, e)
	delete(r.options, keyIsolation)
	h, err := hostnet.Open(hostnet.Options{Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Check(r.ctx()); err != nil {
		t.Skipf("agents cannot be isolated here: %v", err)
	}
	r.t.Cleanup(r.removeNetwork)
	return r
}

func (r *rig) removeNetwork() {
	_, err := r.e.API.NetworkRemove(context.Background(), networkName, client.NetworkRemoveOptions{})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		r.t.Error(err)
	}
}

// serve listens on every address of this machine, and returns the port.
func serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// verdicts waits until an agent has tried its targets.
func (r *rig) verdicts(id string) string {
	r.t.Helper()
	r.eventually("the agent has tried all", func() bool { return strings.HasSuffix(r.output(id), "ready") })
	return r.output(id)
}

// Agents reach neither this machine, but for what their policy opens, nor each other; their rules are there before their token, come back
// when somebody flushes them, and go with them.
func TestIsolation(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := isolating(t, e)
		closed, open := serve(t), serve(t)
		r.env["HELPER"] = "listen"
		b := r.backend("one")
		r.create(b, r.spec(agent1))
		first := r.inspect(agent1).NetworkSettings.Networks[networkName].IPAddress
		if !agentSubnet.Contains(first) {
			t.Fatalf("the agent has address %s", first)
		}
		r.env["TARGETS"] = fmt.Sprintf("172.30.0.1:%s 172.30.0.1:%s %s:7777", closed, open, first)
		port, _ := netip.ParseAddrPort("0.0.0.0:" + open)
		entry := r.entry("one")
		entry.Sets[0].Network = netpolicy.Policy{HostAccess: []netpolicy.Access{{To: netpolicy.Anywhere, Port: port.Port()}}}
		next, err := b.Reload(entry)
		if err != nil {
			t.Fatal(err)
		}
		b2 := next.(*Backend)
		r.create(b2, r.spec("scaler-container-00000002"))
		got := r.verdicts("scaler-container-00000002")
		for _, want := range []string{"172.30.0.1:" + closed + " is closed", "172.30.0.1:" + open + " is open", first.String() + ":7777 is closed"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in\n%s", want, got)
			}
		}
		if have := r.ruled(b); !slices.Equal(have, []string{agent1, "scaler-container-00000002"}) {
			t.Errorf("rules of %v", have)
		}
		agents, err := b.rules.List(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.rules.Remove(r.ctx(), agents...); err != nil { // somebody else's hand
			t.Fatal(err)
		}
		seen := &watchedRules{rules: b.rules, ports: map[string]string{}}
		b.rules = seen
		r.list(b, agent1)
		if have := r.ruled(b); len(have) != 2 {
			t.Errorf("after a repair: rules of %v", have)
		}
		if p := seen.ports; p[agent1] == "" || p["scaler-container-00000002"] == "" || p[agent1] == p["scaler-container-00000002"] {
			t.Errorf("ports of the bridge: %v", p)
		}
		if err := b.Delete(r.ctx(), backend.Ref{AgentID: agent1}); err != nil {
			t.Fatal(err)
		}
		if have := r.ruled(b); !slices.Equal(have, []string{"scaler-container-00000002"}) {
			t.Errorf("after a delete: rules of %v", have)
		}
	})
}

// watchedRules remember which ports they were told.
type watchedRules struct {
	rules
	ports map[string]string
}

func (w *watchedRules) Sync(ctx context.Context, b hostnet.Bridge, want []hostnet.Rules) ([]hostnet.Agent, error) {
	for _, r := range want {
		w.ports[r.Agent] = r.Port
	}
	return w.rules.Sync(ctx, b, want)
}

// ruled names the agents of a backend that have rules.
func (r *rig) ruled(b *Backend) (out []string) {
	r.t.Helper()
	all, err := b.rules.List(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range all {
		if a.Owner == b.owner() {
			out = append(out, a.ID)
		}
	}
	slices.Sort(out)
	return out
}

// The rules of a scaler that is no longer configured go with its agents.
func TestRetiringScalerRemovesRules(t *testing.T) {
	r := isolating(t, enginetest.Get(t, "docker"))
	configured := r.backend("one")
	r.create(configured, r.spec(agent1))
	retiring, err := open(backend.Entry{Name: "one", Retiring: true}, r.host(), realFacts())
	if err != nil {
		t.Fatal(err)
	}
	defer retiring.Close()
	if err := retiring.Delete(r.ctx(), backend.Ref{AgentID: agent1}); err != nil {
		t.Fatal(err)
	}
	if have := r.ruled(configured); len(have) > 0 {
		t.Errorf("rules of %v are left", have)
	}
}

// XS-78: several make the network at once; all get the same one.
func TestXS78NetworkIsMadeConcurrently(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := isolating(t, e)
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				b, err := open(r.entry(fmt.Sprintf("s%d", i)), r.host(), realFacts())
				if err != nil {
					t.Error(err)
					return
				}
				defer b.Close()
				if err := b.Prepare(r.ctx()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		list, err := e.API.NetworkList(r.ctx(), client.NetworkListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, have := range list.Items {
			if have.Name == networkName {
				n++
			}
		}
		if n != 1 {
			t.Errorf("there are %d networks", n)
		}
	})
}

// CT-6: a network of the same name that is another one is not used.
func TestNetworkOfSomebodyElse(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		r := isolating(t, e)
		_, err := e.API.NetworkCreate(r.ctx(), networkName, client.NetworkCreateOptions{
			Driver: "bridge", IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: netip.MustParsePrefix("172.29.0.0/16"), Gateway: netip.MustParseAddr("172.29.0.1")}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := open(r.entry("one"), r.host(), realFacts())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if err := b.Prepare(r.ctx()); err == nil || !strings.Contains(err.Error(), "subnet and gateway must be 172.30.0.0/16") {
			t.Errorf("got %v", err)
		}
		if _, err := b.Create(r.ctx(), r.spec(agent1)); !errors.Is(err, backend.ErrNotReady) {
			t.Errorf("it starts agents all the same: %v", err)
		}
	})
}

// XS-81: the rules of a container that is gone go before its address is used again, whoever's they were.
func TestXS81StaleRulesGo(t *testing.T) {
	e := enginetest.Get(t, "docker")
	r := isolating(t, e)
	other := newRig(t, e)
	delete(other.options, keyIsolation)
	gone := other.backend("gone")
	stale := hostnet.Rules{Agent: "scaler-container-0000dead", Addr: netip.MustParseAddr("172.30.0.99")}
	if err := gone.rules.Apply(r.ctx(), gone.network, stale); err != nil {
		t.Fatal(err)
	}
	b := r.backend("one")
	all, err := b.rules.List(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}

// fakeRules are rules that fail on demand.
type fakeRules struct {
	check, list, sync error
	removed           []hostnet.Agent
	there             []hostnet.Agent
	refused           hostnet.Refused
	forgotten         error // of Refused
}

func (f *fakeRules) Check(context.Context) (hostnet.Support, error) {
	return hostnet.Support{}, f.check
}

func (f *fakeRules) Apply(context.Context, hostnet.Bridge, hostnet.Rules) error {
	return nil
}

func (f *fakeRules) Sync(context.Context, hostnet.Bridge, []hostnet.Rules) ([]hostnet.Agent, error) {
	return nil, f.sync
}

func (f *fakeRules) Remove(_ context.Context, a ...hostnet.Agent) error {
	f.removed = append(f.removed, a...)
	return nil
}
func (f *fakeRules) List(context.Context) ([]hostnet.Agent, error) { return f.there, f.list }
func (f *fakeRules) Close() error                                  { return nil }

func (f *fakeRules) Port(context.Context, string, int) (string, error) {
	return "", hostnet.ErrNoPort
}

func (f *fakeRules) Refused(context.Context, string) (hostnet.Refused, error) {
	return f.refused, f.forgotten
}

// XS-76: where agents cannot be isolated, none is started.
func TestXS76NoIsolationNoAgents(t *testing.T) {
	r := newRig(t, enginetest.Get(t, "docker"))
	delete(r.options, keyIsolation)
	b, err := open(r.entry("one"), r.host(), realFacts())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_ = b.rules.Close()
	b.rules = &fakeRules{check: errors.New("nft is missing")}
	if err := b.Prepare(r.ctx()); err == nil || err.Error() != "nft is missing" {
		t.Errorf("prepare: %v", err)
	}
	if _, err := b.Create(r.ctx(), r.spec(agent1)); !errors.Is(err, backend.ErrNotReady) {
		t.Errorf("create: %v", err)
	}
}

// What an agent was refused is known until its rules go.
func TestRefusalsAreTold(t *testing.T) {
	g, err := newEngine(backend.Entry{Name: "one"}, (&rig{dir: t.TempDir(), node: "n", log: slog.New(slog.DiscardHandler)}).host(), endpoint{URL: "unix:///nowhere.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_ = g.rules.Close()
	addr := netip.MustParseAddr("172.30.0.2")
	rules := &fakeRules{
		there:   []hostnet.Agent{{ID: "a", Owner: g.owner(), Bridge: "b", Addr: addr}, {ID: "a", Owner: "other", Bridge: "b", Addr: addr.Next()}},
		refused: hostnet.Refused{Packets: 3, First: []hostnet.Destination{{Addr: netip.MustParseAddr("10.0.0.1"), Protocol: 6, Port: 5432}}},
	}
	g.rules, g.network = rules, bridge{Name: "b"}
	if text := g.Refusals(t.Context(), "a"); text != "packets: 3, first to: tcp 10.0.0.1:5432" {
		t.Errorf("it says %q", text)
	}
	// Its container ends, and a look comes before it is deleted.
	g.ports["a"] = "veth1"
	g.keepRefusals(t.Context(), []container.Summary{{State: "exited", Labels: map[string]string{labelAgent: "a"}}})
	rules.forgotten = hostnet.ErrNoRules
	if text := g.Refusals(t.Context(), "a"); text != "packets: 3, first to: tcp 10.0.0.1:5432" {
		t.Errorf("of an agent that has ended it says %q", text)
	}
	g.forget("a")
	if text := g.Refusals(t.Context(), "a"); text != "" {
		t.Errorf("of one that is gone it says %q", text)
	}
	rules.forgotten = nil
	if err := g.release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rules.removed, rules.there[:1]) {
		t.Errorf("removed: %v", rules.removed)
	}
	rules.refused = hostnet.Refused{}
	if text := g.Refusals(t.Context(), "a"); text != "" {
		t.Errorf("nothing was refused: %q", text)
	}
}

// XS-82: when containers cannot be listed, no rule is taken away.
func TestXS82FailedListingRemovesNoRules(t *testing.T) {
	rules := &fakeRules{there: []hostnet.Agent{{ID: "a", Owner: "o", Bridge: "b", Addr: netip.MustParseAddr("172.30.0.2")}}, sync: errors.New("must not be asked")}
	g, err := newEngine(backend.Entry{Name: "one"}, (&rig{dir: t.TempDir(), node: "n", log: slog.New(slog.DiscardHandler)}).host(), endpoint{URL: "unix:///nowhere.sock"})
	if err != nil {
		t.Fatal(err)
	}
	_ = g.rules.Close()
	g.rules, g.network = rules, bridge{Name: "b"}
	defer g.Close()
	if err := g.sweepRules(t.Context(), g.network); err == nil {
		t.Error("the sweep did not fail")
	}
	if _, err := g.survey(t.Context()); err == nil || strings.Contains(err.Error(), "must not") {
		t.Errorf("survey: %v", err)
	}
	if len(rules.removed) > 0 {
		t.Errorf("removed %v", rules.removed)
	}
}

// XS-77: a container whose address cannot be found is not let go on: it never gets its token.
func TestXS77NoAddressNoAgent(t *testing.T) {
	e := enginetest.Get(t, "docker")
	r := isolating(t, e)
	straight := r.backend("one")
	r.options = backend.Options{keySocket: withoutAddress(t, e)}
	b := r.open(t, "one")
	defer b.Close()
	if _, err := b.Create(r.ctx(), r.spec(agent1)); !errors.Is(err, backend.ErrInfra) || !strings.Contains(err.Error(), "no address") {
		t.Errorf("create: %v", err)
	}
	if left := r.left(agent1); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if have := r.ruled(straight); len(have) > 0 {
		t.Errorf("rules of %v", have)
	}
}

// withoutAddress is an engine that does not say where a container is.
func withoutAddress(t *testing.T, e *enginetest.Engine) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ModifyResponse = func(resp *http.Response) error {
		if path := resp.Request.URL.Path; !strings.HasSuffix(path, "/json") || !strings.Contains(path, "/containers/") {
			return nil
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		body = bytes.ReplaceAll(body, []byte(`"`+networkName+`":{`), []byte(`"other":{`))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Del("Content-Length")
		return nil
	}
	server := &http.Server{Handler: proxy}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); transport.CloseIdleConnections() })
	return socket
}
