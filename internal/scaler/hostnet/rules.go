package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"sync"

	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// Bridge is a network of agents on this host.
type Bridge struct {
	Name    string       // of the interface, at most 15 characters
	Subnet  netip.Prefix // IPv4; every address of its agents
	Gateway netip.Addr   // the host's own address on the bridge
}

// Rules are what one agent may do. They are a plain value: keep it, and hand it to Sync again after a restart.
type Rules struct {
	Agent string     // agent id
	Addr  netip.Addr // its address on the bridge, IPv4
	// Port is the port of the bridge behind which it is (Net.Port): nothing with another address comes from there. When it is empty, what
	// Apply was told before stays.
	Port string

	Allow      []netip.Prefix     // open, whatever lies there
	DenyAll    bool               // nothing beyond Allow and Resolvers
	HostAccess []netpolicy.Access // all that is open on the host; empty is nothing (HA-4)
	Resolvers  []netip.Addr       // port 53 is open there, also in private networks
}

// Agent is who has rules on this host.
type Agent struct {
	ID     string
	Owner  string // Options.Owner of who made them
	Bridge string
	Addr   netip.Addr
}

var (
	// Names of agents and owners become part of names and comments in nftables, which have at most 250 bytes.
	idPattern    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })
	ownerPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$`) })
	ifacePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`) })
)

func (b Bridge) check() error {
	switch {
	case !ifacePattern().MatchString(b.Name):
		return fmt.Errorf("%.40q is no name of a bridge", b.Name)
	case !b.Subnet.IsValid() || !b.Subnet.Addr().Is4() || b.Subnet.Bits() == 0:
		return fmt.Errorf("bridge %s: %s is no IPv4 network", b.Name, b.Subnet)
	case !b.Subnet.Contains(b.Gateway):
		return fmt.Errorf("bridge %s: the gateway %s is not in %s", b.Name, b.Gateway, b.Subnet)
	}
	return nil
}

func (r Rules) check(b Bridge) error {
	if !idPattern().MatchString(r.Agent) {
		return fmt.Errorf("%.80q is no id of an agent", r.Agent)
	}
	if err := r.checkAddresses(b); err != nil {
		return fmt.Errorf("agent %s: %w", r.Agent, err)
	}
	return nil
}

func (r Rules) checkAddresses(b Bridge) error {
	switch {
	case r.Port != "" && !ifacePattern().MatchString(r.Port):
		return fmt.Errorf("%.40q is no name of a port", r.Port)
	case !r.Addr.IsValid():
		return errors.New("its address is not known") // XS-77
	case !r.Addr.Is4() || !b.Subnet.Contains(r.Addr) || r.Addr == b.Gateway:
		return fmt.Errorf("%s is no address for it on bridge %s (%s)", r.Addr, b.Name, b.Subnet)
	case max(len(r.Allow), len(r.HostAccess), len(r.Resolvers)) > netpolicy.MaxEntries:
		return fmt.Errorf("a list of its network policy has more than %d entries", netpolicy.MaxEntries)
	}
	for _, p := range r.Allow {
		if !p.IsValid() || !p.Addr().Is4() {
			return fmt.Errorf("allow-list: %s is no IPv4 network", p)
		}
	}
	for _, a := range r.HostAccess {
		if !a.To.IsValid() || !a.To.Addr().Is4() {
			return fmt.Errorf("host access: %s is no IPv4 destination", a.To)
		}
	}
	for _, a := range r.Resolvers {
		if !a.Is4() {
			return fmt.Errorf("resolver %s has no IPv4 address", a)
		}
	}
	return nil
}
