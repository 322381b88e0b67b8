package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Access opens TCP and UDP to a destination on the agent's host, for one agent (HA-3).
type Access struct {
	To   netip.Prefix // IPv4; 0.0.0.0/0 is every address of the host
	Port uint16       // 0 is every port
}

// Anywhere is every IPv4 address.
var Anywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// String is the entry as it stands in scalers.yaml.
func (a Access) String() string {
	s := a.To.String()
	switch {
	case a.To == Anywhere:
		s = "*"
	case a.To.IsSingleIP():
		s = a.To.Addr().String()
	}
	if a.Port != 0 {
		s += ":" + strconv.Itoa(int(a.Port))
	}
	return s
}

// maxEntry is longer than any entry that could be right ("255.255.255.255/32:65535").
const maxEntry = 32

// ParseAccess reads "<cidr|address|*>[:<port|*>]", IPv4 only (HA-1, HA-2). Errors name the entry.
func ParseAccess(entry string) (Access, error) {
	fail := func(why string) (Access, error) { return Access{}, fmt.Errorf("host access %.40q: %s", entry, why) }
	if len(entry) > maxEntry {
		return fail("it is too long; write an IPv4 address, a network or *, and a port if one is meant")
	}
	if strings.Count(entry, ":") > 1 {
		return fail("agents have IPv4 only; write an IPv4 address, a network or *")
	}
	host, port, hasPort := strings.Cut(entry, ":")
	to, err := parseDestination(host)
	if err != nil {
		return fail(err.Error())
	}
	a := Access{To: to}
	if hasPort && port != "*" {
		if a.Port, err = parsePort(port); err != nil {
			return fail(err.Error())
		}
	}
	return a, nil
}

func parseDestination(s string) (netip.Prefix, error) {
	if s == "*" {
		return Anywhere, nil
	}
	if strings.Contains(s, "/") {
		return ParseNetwork(s)
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is4() {
		return netip.Prefix{}, errors.New("the destination must be an IPv4 address, a network such as 10.0.0.0/8, or *")
	}
	return netip.PrefixFrom(addr, 32), nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, errors.New("the port must be a number from 1 to 65535, or *")
	}
	return uint16(n), nil
}

// ParseNetwork reads an IPv4 network of the allow-list (CF-10). Bits beyond the prefix are ignored.
func ParseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, errors.New("must be an IPv4 network, such as 10.0.0.0/8")
	}
	return p.Masked(), nil
}
