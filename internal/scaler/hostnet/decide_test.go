package hostnet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

var testBridge = Bridge{Name: "br-test", Subnet: netip.MustParsePrefix("172.30.0.0/16"), Gateway: netip.MustParseAddr("172.30.0.1")}

func rulesOf(agent, addr string) Rules { return Rules{Agent: agent, Addr: netip.MustParseAddr(addr)} }

func lines(rules []rule) string {
	var out []string
	for _, r := range rules {
		out = append(out, r.String())
	}
	return strings.Join(out, "\n")
}

const closed = `refuse to 10.0.0.0/8
refuse to 172.16.0.0/12
refuse to 192.168.0.0/16
refuse to 169.254.0.0/16
refuse to 100.64.0.0/10
`

func TestForwardRules(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16"), netip.MustParsePrefix("0.0.0.0/0")}
	resolvers := []netip.Addr{netip.MustParseAddr("192.168.1.1")}
	for _, tc := range []struct {
		name  string
		rules Rules
		want  string
	}{
		{"default", Rules{}, closed + "accept"},
		{"allow-list, before what is private, in its order", Rules{Allow: allow}, "accept to 10.1.0.0/16\naccept to 0.0.0.0/0\n" + closed + "accept"},
		{"resolvers", Rules{Resolvers: resolvers}, "accept to 192.168.1.1/32 port 53\n" + closed + "accept"},
		{"denyAll", Rules{DenyAll: true, Allow: allow[:1]}, "accept to 10.1.0.0/16\n" + closed + "refuse"},
		{"the host's services change nothing here", Rules{HostAccess: []netpolicy.Access{{To: netpolicy.Anywhere}}}, closed + "accept"},
	} {
		if got, want := lines(forwardRules(testBridge, tc.rules)), "accept to 172.30.0.1/32\n"+tc.want; got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", tc.name, got, want)
		}
	}
}

func TestInputRules(t *testing.T) {
	access := []netpolicy.Access{
		{To: netpolicy.Anywhere, Port: 4000},
		{To: netip.MustParsePrefix("172.30.0.1/32"), Port: 53},
		{To: netip.MustParsePrefix("10.0.0.7/8")},
		{To: netpolicy.Anywhere},
	}
	for _, tc := range []struct {
		name   string
		access []netpolicy.Access
		want   string
	}{
		{"a list, in its order", access, "accept answers\naccept port 4000\naccept to 172.30.0.1/32 port 53\naccept to 10.0.0.0/8 any port\naccept any port\nrefuse"},
		{"XS-107: an empty list", nil, "accept answers\nrefuse"},
	} {
		if got := lines(inputRules(Rules{HostAccess: tc.access, Allow: []netip.Prefix{netpolicy.Anywhere}})); got != tc.want {
			t.Errorf("%s:\n%s\nwant:\n%s", tc.name, got, tc.want)
		}
	}
}

func TestChecks(t *testing.T) {
	good := rulesOf("a", "172.30.0.2")
	with := func(f func(*Rules)) Rules { r := good; f(&r); return r }
	for name, tc := range map[string]struct {
		rules Rules
		want  string // "" is right
	}{
		"right":                        {good, ""},
		"XS-77: no address":            {Rules{Agent: "a"}, "its address is not known"},
		"outside of the bridge":        {rulesOf("a", "10.0.0.1"), "no address for it on bridge br-test"},
		"the gateway's own":            {rulesOf("a", "172.30.0.1"), "no address for it"},
		"IPv6":                         {rulesOf("a", "::ffff:172.30.0.2"), "no address for it"},
		"no agent":                     {rulesOf("", "172.30.0.2"), "no id of an agent"},
		"an id that breaks a comment":  {rulesOf("a b", "172.30.0.2"), "no id of an agent"},
		"a long id":                    {rulesOf(strings.Repeat("a", 65), "172.30.0.2"), "no id of an agent"},
		"allow-list without a network": {with(func(r *Rules) { r.Allow = make([]netip.Prefix, 1) }), "allow-list"},
		"host access to IPv6":          {with(func(r *Rules) { r.HostAccess = []netpolicy.Access{{To: netip.MustParsePrefix("::/0")}} }), "host access"},
		"no resolver":                  {with(func(r *Rules) { r.Resolvers = make([]netip.Addr, 1) }), "resolver"},
		"too much":                     {with(func(r *Rules) { r.Resolvers = make([]netip.Addr, netpolicy.MaxEntries+1) }), "more than 128"},
	} {
		err := tc.rules.check(testBridge)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	for name, b := range map[string]Bridge{
		"no name":    {Subnet: testBridge.Subnet, Gateway: testBridge.Gateway},
		"long name":  {"br-0123456789abc", testBridge.Subnet, testBridge.Gateway},
		"no subnet":  {"br-x", netip.Prefix{}, testBridge.Gateway},
		"everywhere": {"br-x", netpolicy.Anywhere, testBridge.Gateway},
		"gateway":    {"br-x", testBridge.Subnet, netip.MustParseAddr("10.0.0.1")},
	} {
		if b.check() == nil {
			t.Errorf("bridge with %s passes", name)
		}
	}
}

func TestCommentsAreReadBack(t *testing.T) {
	e := entry{Agent: Agent{ID: "scaler-container-0a1b2c3d", Owner: "main/node-1/docker@x"}, digest: digest(testBridge, rulesOf("a", "172.30.0.2"))}
	if got, ok := parseComment(e.comment()); !ok || got != e {
		t.Errorf("%q reads as %+v", e.comment(), got)
	}
	longest := entry{Agent: Agent{ID: strings.Repeat("a", 64), Owner: strings.Repeat("o", 128)}, digest: e.digest}
	if n := len(longest.comment()); n > 250 {
		t.Errorf("a comment may have %d bytes; the kernel takes 256 with its header", n)
	}
	for _, s := range []string{"", "a", "a b", "a b c d", "-a b c", "a -b c"} {
		if got, ok := parseComment(s); ok {
			t.Errorf("%q reads as %+v", s, got)
		}
	}
}

func TestDigestTellsRulesApart(t *testing.T) {
	base := rulesOf("a", "172.30.0.2")
	seen := map[string]bool{digest(testBridge, base): true}
	for i, change := range []func(*Rules){
		func(r *Rules) { r.DenyAll = true },
		func(r *Rules) { r.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} },
		func(r *Rules) { r.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9")} },
		func(r *Rules) { r.Resolvers = []netip.Addr{netip.MustParseAddr("10.0.0.1")} },
		func(r *Rules) { r.HostAccess = []netpolicy.Access{{To: netpolicy.Anywhere}} },
		func(r *Rules) { r.HostAccess = []netpolicy.Access{{To: netpolicy.Anywhere, Port: 1}} },
	} {
		r := base
		change(&r)
		if d := digest(testBridge, r); seen[d] {
			t.Errorf("change %d keeps the digest", i)
		} else {
			seen[d] = true
		}
	}
	same := base
	same.HostAccess = slices.Concat(base.HostAccess, nil)
	if !seen[digest(testBridge, same)] {
		t.Error("the same rules have another digest")
	}
}

func TestRefusedInWords(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	r := Refused{Packets: 9, First: []Destination{{addr, 1, 0}, {addr, 6, 443}, {addr, 17, 53}, {addr, 47, 0}}}
	want := "packets: 9, first to: icmp 10.0.0.1, tcp 10.0.0.1:443, udp 10.0.0.1:53, protocol 47 10.0.0.1"
	if got := r.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Refused{}).String(); got != "" {
		t.Errorf("nothing is %q", got)
	}
}
