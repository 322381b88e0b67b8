package hostnet

import (
	"net/netip"
	"strconv"

	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// verdict is what becomes of a packet.
type verdict int

const (
	accept verdict = iota + 1
	refuse         // count it, remember where it was to go, and drop it
)

// match is which packets a rule is about. The zero value is every packet.
type match struct {
	To    netip.Prefix // destination; the zero value is anywhere
	Port  bool         // only TCP and UDP, to Number
	Num   uint16       // with Port: 0 is every port
	Reply bool         // answers to what the host itself has opened
}

// rule is one line of an agent's chain; the first that matches wins.
type rule struct {
	Match   match
	Verdict verdict
}

// private networks are closed unless the policy opens them (NET-4). 100.64/10, which providers and overlay networks use, goes with
// them; 169.254/16 holds the metadata services of clouds.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
}

// forwardRules is what an agent reaches through the host (NET-4).
func forwardRules(b Bridge, r Rules) []rule {
	out := []rule{{match{To: netip.PrefixFrom(b.Gateway, 32)}, accept}}
	for _, p := range r.Allow {
		out = append(out, rule{match{To: p.Masked()}, accept})
	}
	for _, a := range r.Resolvers {
		out = append(out, rule{match{To: netip.PrefixFrom(a, 32), Port: true, Num: 53}, accept})
	}
	for _, p := range private {
		out = append(out, rule{match{To: p}, refuse})
	}
	if r.DenyAll {
		return append(out, rule{Verdict: refuse})
	}
	return append(out, rule{Verdict: accept})
}

// inputRules is what an agent reaches on the host (NET-6). Only answers count as established: a connection that the former holder of
// the address opened must not stay open for the next one (XS-81).
func inputRules(r Rules) []rule {
	out := []rule{{match{Reply: true}, accept}}
	for _, a := range r.HostAccess {
		m := match{Port: true, Num: a.Port}
		if a.To != netpolicy.Anywhere {
			m.To = a.To.Masked()
		}
		out = append(out, rule{m, accept})
	}
	return append(out, rule{Verdict: refuse})
}

// String is the rule in words, for comments and tests.
func (r rule) String() string {
	s := map[verdict]string{accept: "accept", refuse: "refuse"}[r.Verdict]
	if r.Match.Reply {
		s += " answers"
	}
	if r.Match.To.IsValid() {
		s += " to " + r.Match.To.String()
	}
	switch {
	case r.Match.Port && r.Match.Num != 0:
		s += " port " + strconv.Itoa(int(r.Match.Num))
	case r.Match.Port:
		s += " any port"
	}
	return s
}
