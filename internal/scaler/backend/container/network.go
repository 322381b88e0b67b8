package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/scaler/hostnet"
)

// bridge is the network of isolated agents on this machine.
type bridge = hostnet.Bridge

// The network of isolated agents (CT-5).
const (
	networkName      = "kici-agent-net"
	dockerInterface  = "kici-agents"
	podmanInterface  = "kici-podman" // another one: both engines may be on one machine
	optionInterface  = "com.docker.network.bridge.name"
	optionBetween    = "com.docker.network.bridge.enable_icc"
	interfacePrefix  = "br-"
	interfaceIDBytes = 12
)

var (
	agentSubnet  = netip.MustParsePrefix("172.30.0.0/16")
	agentGateway = netip.MustParseAddr("172.30.0.1")
)

// networkPatience is how long a network that somebody else is making may take until it can be seen.
const networkPatience = 5 * time.Second

// ensureNetwork finds the network by its exact name, or makes it. Somebody else may do so at the same time (XS-78), of which each engine
// complains in its own way; so after any complaint it is looked for again.
func (g *engine) ensureNetwork(ctx context.Context) (bridge, error) {
	have, found, err := g.findNetwork(ctx)
	if err == nil && !found {
		failed := g.api.CreateNetwork(ctx, g.networkOptions())
		for deadline := time.Now().Add(networkPatience); ; {
			have, found, err = g.findNetwork(ctx)
			if err != nil || found || time.Now().After(deadline) || failed == nil {
				break
			}
			select {
			case <-ctx.Done():
				return bridge{}, context.Cause(ctx)
			case <-time.After(networkPatience / 50):
			}
		}
		if err == nil && !found {
			err = cmp.Or(failed, errors.New("it is not there after it was made"))
		}
	}
	if err != nil {
		return bridge{}, fmt.Errorf("network %s of %s: %w", networkName, g.at, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return fitting(have, g.podman)
}

// Sweep implements backend.Sweeper: rules of agents that have no container, and the network when nobody uses it any more. Another server of this
// machine that needs the network makes it again.
func (g *engine) Sweep(ctx context.Context) error {
	have, found, err := g.findNetwork(ctx)
	if err != nil {
		return fmt.Errorf("network %s of %s: %w", networkName, g.at, err)
	}
	var errs []error
	if g.rules != nil {
		errs = append(errs, g.dropRules(ctx))
	}
	if !found || have.Labels[labelManaged] != "true" || len(have.Containers) > 0 {
		return errors.Join(errs...)
	}
	err = g.api.RemoveNetwork(ctx, have.ID)
	switch {
	case err == nil:
		g.log.Info("removed the network of agents: nobody uses it")
		g.host.Leaks.Removed(1, backend.Network)
	case engineapi.IsStatus(err, http.StatusNotFound, http.StatusForbidden, http.StatusConflict): // gone, or in use all of a sudden
	default:
		errs = append(errs, fmt.Errorf("remove network %s: %w", networkName, err))
	}
	return errors.Join(errs...)
}

// dropRules removes this scaler's rules of agents that have no container. Where rules cannot be looked at, there are none of ours.
func (g *engine) dropRules(ctx context.Context) error {
	there, err := g.rules.List(ctx)
	if err != nil {
		g.log.Debug("look for network rules", "err", err)
		return nil
	}
	items, err := g.ours(ctx)
	if err != nil {
		return err
	}
	stale := slices.DeleteFunc(there, func(a hostnet.Agent) bool {
		return a.Owner != g.owner() || slices.ContainsFunc(items, func(c container.Summary) bool { return c.Labels[labelAgent] == a.ID })
	})
	if len(stale) == 0 {
		return nil
	}
	g.host.Leaks.Found(len(stale), backend.Rule)
	if err := g.rules.Remove(ctx, stale...); err != nil {
		return err
	}
	g.host.Leaks.Healed(len(stale), backend.Rule)
	return nil
}

func (g *engine) networkOptions() network.CreateRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	off, name := false, dockerInterface
	if g.podman {
		name = podmanInterface
	}
	return network.CreateRequest{
		Name: networkName, Driver: "bridge", EnableIPv6: &off, Labels: map[string]string{labelManaged: "true"},
		IPAM:    &network.IPAM{Config: []network.IPAMConfig{{Subnet: agentSubnet, Gateway: agentGateway}}},
		Options: map[string]string{optionInterface: name, optionBetween: "false"},
	}
}

func (g *engine) findNetwork(ctx context.Context) (have network.Inspect, found bool, err error) {
	list, err := g.api.Networks(ctx, engineapi.Filters{"name": {networkName}})
	if err != nil {
		return have, false, err
	}
	for _, n := range list { // the filter takes parts of names, too
		if n.Name != networkName {
			continue
		}
		got, err := g.api.InspectNetwork(ctx, n.ID)
		if engineapi.IsStatus(err, http.StatusNotFound) {
			continue
		}
		return got, err == nil, err
	}
	return have, false, nil
}

// fitting refuses a network that somebody made otherwise (CT-6): the rules would not hold for it.
func fitting(n network.Inspect, podman bool) (bridge, error) {
	wrong := ""
	switch {
	case len(n.IPAM.Config) != 1 || n.IPAM.Config[0].Subnet != agentSubnet || n.IPAM.Config[0].Gateway != agentGateway:
		wrong = fmt.Sprintf("its subnet and gateway must be %s and %s, and are %v", agentSubnet, agentGateway, n.IPAM.Config)
	case n.EnableIPv6:
		wrong = "it must be without IPv6"
	case n.Driver != "bridge":
		wrong = "its driver must be bridge, and is " + n.Driver
	}
	if wrong != "" {
		return bridge{}, fmt.Errorf("there is a network %s already, and %s: remove it, then it is made anew", networkName, wrong)
	}
	name := n.Options[optionInterface]
	switch {
	case name != "":
	case podman: // it keeps the option to itself
		name = podmanInterface
	default:
		name = interfacePrefix + n.ID[:min(interfaceIDBytes, len(n.ID))]
	}
	return bridge{Name: name, Subnet: agentSubnet, Gateway: agentGateway}, nil
}

// bridgeWith is the name of the interface of this machine that has an address: what the engine really made. What it was asked for, and what
// it says, may be something else, and rules for another name would hold nobody back.
func bridgeWith(addr netip.Addr) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == addr {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface of this machine has address %s: is the engine in another network namespace, as rootless ones are", addr)
}
