package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/scaler/hostnet"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// rules is what keeps agents apart on this machine: hostnet.Net.
type rules interface {
	Check(context.Context) (hostnet.Support, error)
	Apply(context.Context, hostnet.Bridge, hostnet.Rules) error
	Sync(context.Context, hostnet.Bridge, []hostnet.Rules) (gone []hostnet.Agent, err error)
	Remove(context.Context, ...hostnet.Agent) error
	Refused(context.Context, string) (hostnet.Refused, error)
	List(context.Context) ([]hostnet.Agent, error)
	Port(ctx context.Context, bridge string, pid int) (string, error)
	Close() error
}

func openRules(owner string) (rules, error) { return hostnet.Open(hostnet.Options{Owner: owner}) }

// fence prepares the network of isolated agents: it fails closed from then on (CT-4).
func (g *engine) fence(ctx context.Context) error {
	if g.rules == nil {
		return errors.New("networkIsolation cannot protect containers of an engine elsewhere")
	}
	support, err := g.rules.Check(ctx)
	if err != nil {
		return err
	}
	if !support.BridgeMeta {
		g.log.Warn("this kernel lacks CONFIG_NFT_BRIDGE_META: two agents that work together can exchange frames other than IPv4")
	}
	b, err := g.ensureNetwork(ctx)
	if err != nil {
		return err
	}
	g.ruling.Lock()
	defer g.ruling.Unlock()
	items, err := g.ours(ctx)
	if err != nil {
		return err
	}
	if err := g.settleRules(ctx, b, items); err != nil {
		return err
	}
	g.mu.Lock()
	g.network = b
	g.mu.Unlock()
	return g.sweepRules(ctx, b)
}

// survey lists our containers and repairs the rules of those that run. A listing that fails changes no rule (NET-10).
func (g *engine) survey(ctx context.Context) ([]container.Summary, error) {
	g.mu.Lock()
	b := g.network
	g.mu.Unlock()
	if b.Name == "" {
		return g.ours(ctx)
	}
	// A container that gets its rules meanwhile would be missing from the list, and lose them.
	g.ruling.Lock()
	defer g.ruling.Unlock()
	items, err := g.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.settleRules(ctx, b, items); err != nil {
		g.log.Error("make the network rules of agents true again", "err", err)
	}
	return items, nil
}

// settleRules makes the rules of our containers those that there are. Rules of an agent that has no container, and that nobody is just
// making or ending, are a leak.
func (g *engine) settleRules(ctx context.Context, b bridge, items []container.Summary) error {
	g.keepRefusals(ctx, items)
	gone, err := g.rules.Sync(ctx, b, g.standing(ctx, b, items))
	if err != nil {
		return err
	}
	for _, a := range gone {
		has := slices.ContainsFunc(items, func(c container.Summary) bool { return c.Labels[labelAgent] == a.ID })
		if !has && !g.busy(a.ID) {
			g.log.Warn("removed network rules of an agent without a container", "agent_id", a.ID)
			g.host.Leaks.Removed(1, backend.Rule)
		}
	}
	return nil
}

// standing are the rules of containers that run. One without an address has none, and reaches nothing.
func (g *engine) standing(ctx context.Context, b bridge, items []container.Summary) []hostnet.Rules {
	var out []hostnet.Rules
	for _, c := range items {
		if !alive(c.State) || c.Labels[labelRules] == "" || c.NetworkSettings == nil {
			continue
		}
		at := c.NetworkSettings.Networks[networkName]
		if at == nil || !at.IPAddress.IsValid() {
			continue
		}
		r, err := decodeRules(c.Labels[labelRules], c.Labels[labelAgent], at.IPAddress)
		if err != nil {
			g.log.Error("network rules of an agent", "agent_id", c.Labels[labelAgent], "err", err)
			continue
		}
		r.Port = g.portOf(ctx, b, c)
		out = append(out, r)
	}
	return out
}

// confine gives a container its rules. Without an address it must not go on (XS-77).
func (g *engine) confine(ctx context.Context, id string, l launch) error {
	in, err := g.api.Inspect(ctx, id)
	if err != nil {
		return hostError(err, backend.ErrInfra)
	}
	var addr netip.Addr
	if n := in.NetworkSettings; n != nil && n.Networks[networkName] != nil {
		addr = n.Networks[networkName].IPAddress
	}
	if !addr.IsValid() {
		return fmt.Errorf("%w: the container has no address in network %s, so it cannot be isolated", backend.ErrInfra, networkName)
	}
	r, err := decodeRules(string(l.rules), l.spec.AgentID, addr)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrInfra, err)
	}
	name, err := bridgeWith(agentGateway)
	if err != nil {
		return fmt.Errorf("%w: the agent cannot be isolated: %w", backend.ErrRefused, err)
	}
	g.mu.Lock()
	if g.network.Name != name {
		g.log.Warn("the network of agents has another interface than expected", "interface", name, "expected", g.network.Name)
		g.network.Name = name
	}
	b := g.network
	g.mu.Unlock()
	r.Port = g.learnPort(ctx, b, l.spec.AgentID, in.State)
	g.ruling.Lock()
	defer g.ruling.Unlock()
	if err := g.rules.Apply(ctx, b, r); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrInfra, err)
	}
	return nil
}

// learnPort finds and remembers the port of the bridge behind which a container is; ” when it cannot be found out, as by a server that
// may not enter the container's network.
func (g *engine) learnPort(ctx context.Context, b bridge, agent string, state *container.State) string {
	if state == nil || !state.Running {
		return ""
	}
	port, err := g.rules.Port(ctx, b.Name, state.Pid)
	if err != nil {
		g.unguarded.Do(func() {
			g.log.Warn("addresses of agents are not bound to their ports: a job that may send raw frames can borrow a neighbour's", "err", err)
		})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ports[agent] = port
	return port
}

// portOf is the port of a running container: remembered, or, of one that an earlier process has started, looked up once.
func (g *engine) portOf(ctx context.Context, b bridge, c container.Summary) string {
	agent := c.Labels[labelAgent]
	g.mu.Lock()
	port, known := g.ports[agent]
	g.mu.Unlock()
	if known {
		return port
	}
	in, err := g.api.Inspect(ctx, c.ID)
	if err != nil {
		return ""
	}
	return g.learnPort(ctx, b, agent, in.State)
}

// keepRefusals remembers what agents were refused that have ended: their rules go now, and are asked for when what is left is deleted.
func (g *engine) keepRefusals(ctx context.Context, items []container.Summary) {
	g.mu.Lock()
	known := slices.Collect(maps.Keys(g.ports))
	g.mu.Unlock()
	for _, agent := range known {
		if slices.ContainsFunc(items, func(c container.Summary) bool { return c.Labels[labelAgent] == agent && alive(c.State) }) {
			continue
		}
		if refused, err := g.rules.Refused(ctx, agent); err == nil && refused.Packets > 0 {
			g.mu.Lock()
			g.refused[agent] = refused
			g.mu.Unlock()
		}
	}
}

// forget what is remembered of an agent of which nothing is left.
func (g *engine) forget(agent string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ports, agent)
	delete(g.refused, agent)
}

// release removes an agent's rules, whatever address it had. A scaler that isolates nobody any more, and perhaps may not even look, takes
// away what it can of earlier days.
func (g *engine) release(ctx context.Context, agent string) error {
	if g.rules == nil {
		return nil
	}
	g.mu.Lock()
	fenced := g.network.Name != ""
	g.mu.Unlock()
	there, err := g.rules.List(ctx)
	if err != nil && !fenced {
		g.log.Debug("look for network rules", "agent_id", agent, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	there = slices.DeleteFunc(there, func(a hostnet.Agent) bool { return a.ID != agent || a.Owner != g.owner() })
	if len(there) == 0 {
		return nil
	}
	return g.rules.Remove(ctx, there...)
}

// Refusals implements backend.Auditor.
func (g *engine) Refusals(ctx context.Context, agent string) string {
	if g.rules == nil {
		return ""
	}
	refused, err := g.rules.Refused(ctx, agent)
	if err == nil {
		return refused.String()
	}
	g.log.Debug("look for what an agent was refused", "agent_id", agent, "err", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused[agent].String()
}

func (g *engine) owner() string { return g.host.NodeID + "/" + g.scaler }

// sweepRules removes rules of addresses that no managed container has, whoever's it was (CT-27). A failed listing removes nothing (XS-82).
func (g *engine) sweepRules(ctx context.Context, b bridge) error {
	there, err := g.rules.List(ctx)
	if err != nil {
		return err
	}
	items, err := g.api.List(ctx, engineapi.Filters{"label": {labelManaged + "=true"}})
	if err != nil {
		return fmt.Errorf("list containers of %s: %w", g.at, err)
	}
	held := map[netip.Addr]bool{}
	for _, c := range items {
		if c.NetworkSettings != nil && c.NetworkSettings.Networks[networkName] != nil {
			held[c.NetworkSettings.Networks[networkName].IPAddress] = true
		}
	}
	stale := hostnet.Stale(b, there, func(a hostnet.Agent) bool { return held[a.Addr] })
	if len(stale) == 0 {
		return nil
	}
	g.log.Info("remove network rules of containers that are gone", "count", len(stale))
	g.host.Leaks.Found(len(stale), backend.Rule)
	if err := g.rules.Remove(ctx, stale...); err != nil {
		return err
	}
	g.host.Leaks.Healed(len(stale), backend.Rule)
	return nil
}

// reach is what an agent may reach, as its container remembers it. The agent's address is not in it: that changes with each start.
type reach struct {
	Allow      []netip.Prefix     `json:"allow,omitempty"`
	DenyAll    bool               `json:"denyAll,omitempty"`
	HostAccess []netpolicy.Access `json:"hostAccess,omitempty"`
	Resolvers  []netip.Addr       `json:"resolvers,omitempty"`
}

// rulesOf resolves a policy at the time of the launch (HA-7). An agent that has the server's socket needs no port of it.
func rulesOf(s backend.Spec, p netpolicy.Policy, socket bool) reach {
	server := s.URL
	if socket {
		server = ""
	}
	dns := resolvers(resolvFiles)
	byDefault := netpolicy.DefaultAccess(agentGateway, server)
	for _, a := range dns { // one may be this machine itself
		byDefault = append(byDefault, netpolicy.Access{To: netip.PrefixFrom(a, 32), Port: 53})
	}
	return reach{Allow: p.Allow, DenyAll: p.DenyAll, HostAccess: p.Access(byDefault), Resolvers: dns}
}

// encode never fails: the fields are plain.
func (r reach) encode() json.RawMessage {
	data, _ := json.Marshal(r)
	return data
}

func decodeRules(text, agent string, addr netip.Addr) (hostnet.Rules, error) {
	var r reach
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return hostnet.Rules{}, fmt.Errorf("network rules of the container's label: %w", err)
	}
	return hostnet.Rules{Agent: agent, Addr: addr, Allow: r.Allow, DenyAll: r.DenyAll, HostAccess: r.HostAccess, Resolvers: r.Resolvers}, nil
}

// resolvFiles are where engines look for the resolvers that containers are to use.
var resolvFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// maxResolvers is what resolv.conf may have.
const maxResolvers = 3

// resolvers are the machine's, which containers use too: they often have private addresses.
func resolvers(files []string) []netip.Addr {
	var out []netip.Addr
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 2 || fields[0] != "nameserver" || len(out) == maxResolvers {
				continue
			}
			if a, err := netip.ParseAddr(fields[1]); err == nil && a.Is4() && !a.IsLoopback() && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		_ = f.Close()
	}
	return out
}
