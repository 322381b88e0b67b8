package container

import (
	"context"
	"fmt"
	"net/netip"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

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

// ensureNetwork finds the network by its exact name, or makes it; somebody else may do so at the same time (XS-78).
func (g *engine) ensureNetwork(ctx context.Context) (bridge, error) {
	have, found, err := g.findNetwork(ctx)
	if err == nil && !found {
		_, err = g.api.NetworkCreate(ctx, networkName, g.networkOptions())
		if err == nil || cerrdefs.IsConflict(err) {
			have, found, err = g.findNetwork(ctx)
		}
		if err == nil && !found {
			err = fmt.Errorf("it is not there after it was made")
		}
	}
	if err != nil {
		return bridge{}, fmt.Errorf("network %s of %s: %w", networkName, g.at, err)
	}
	return fitting(have)
}

func (g *engine) networkOptions() client.NetworkCreateOptions {
	g.mu.Lock()
	defer g.mu.Unlock()
	off, name := false, dockerInterface
	if g.podman {
		name = podmanInterface
	}
	return client.NetworkCreateOptions{
		Driver: "bridge", EnableIPv6: &off, Labels: map[string]string{labelManaged: "true"},
		IPAM:    &network.IPAM{Config: []network.IPAMConfig{{Subnet: agentSubnet, Gateway: agentGateway}}},
		Options: map[string]string{optionInterface: name, optionBetween: "false"},
	}
}

func (g *engine) findNetwork(ctx context.Context) (have network.Inspect, found bool, err error) {
	list, err := g.api.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("name", networkName)})
	if err != nil {
		return have, false, err
	}
	for _, n := range list.Items { // the filter takes parts of names, too
		if n.Name != networkName {
			continue
		}
		got, err := g.api.NetworkInspect(ctx, n.ID, client.NetworkInspectOptions{})
		if cerrdefs.IsNotFound(err) {
			continue
		}
		return got.Network, err == nil, err
	}
	return have, false, nil
}

// fitting refuses a network that somebody made otherwise (CT-6): the rules would not hold for it.
func fitting(n network.Inspect) (bridge, error) {
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
	if name == "" {
		name = interfacePrefix + n.ID[:min(interfaceIDBytes, len(n.ID))]
	}
	return bridge{Name: name, Subnet: agentSubnet, Gateway: agentGateway}, nil
}
