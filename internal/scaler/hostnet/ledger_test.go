package hostnet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const me, other = "node/me", "node/other"

func has(owner, id, addr string) entry {
	r := rulesOf(id, addr)
	return entry{Agent{id, owner, testBridge.Name, r.Addr}, digest(testBridge, r), bothHooks}
}

// names of what is removed and put, "-a +b".
func (c changes) String() string {
	var out []string
	for _, e := range c.Remove {
		out = append(out, "-"+e.ID+"@"+e.Addr.String())
	}
	for _, r := range c.Put {
		out = append(out, "+"+r.Agent+"@"+r.Addr.String())
	}
	return strings.Join(out, " ")
}

func TestReconcile(t *testing.T) {
	elsewhere := has(me, "b", "172.30.0.3")
	elsewhere.Bridge = "br-old"
	half := has(me, "a", "172.30.0.2")
	half.hooks = hookForward
	changed := has(me, "a", "172.30.0.2")
	changed.digest = "0"
	a := rulesOf("a", "172.30.0.2")
	for _, tc := range []struct {
		name  string
		want  []Rules
		there []entry
		doing string
	}{
		{"nothing", nil, nil, ""},
		{"an agent that has none", []Rules{a}, nil, "+a@172.30.0.2"},
		{"as wanted", []Rules{a}, []entry{has(me, "a", "172.30.0.2")}, ""},
		{"other rules", []Rules{a}, []entry{changed}, "-a@172.30.0.2 +a@172.30.0.2"},
		{"on one hook only", []Rules{a}, []entry{half}, "-a@172.30.0.2 +a@172.30.0.2"},
		{"not wanted", nil, []entry{has(me, "a", "172.30.0.2")}, "-a@172.30.0.2"},
		{"not wanted, on another bridge", []Rules{a}, []entry{has(me, "a", "172.30.0.2"), elsewhere}, "-b@172.30.0.3"},
		{"another owner's", nil, []entry{has(other, "a", "172.30.0.2")}, ""},
		{"NET-8: 172.30.0.2 is not 172.30.0.20", []Rules{a}, []entry{has(other, "b", "172.30.0.20"), has(me, "a", "172.30.0.2")}, ""},
		{"XS-81: the address of a dead one of ours", []Rules{a}, []entry{has(me, "dead", "172.30.0.2")}, "-dead@172.30.0.2 +a@172.30.0.2"},
		{"XS-81: the address of another's dead one", []Rules{a}, []entry{has(other, "dead", "172.30.0.2")}, "-dead@172.30.0.2 +a@172.30.0.2"},
		{"a new address", []Rules{a}, []entry{has(me, "a", "172.30.0.9")}, "-a@172.30.0.9 +a@172.30.0.2"},
	} {
		if got := reconcile(me, testBridge, tc.want, tc.there).String(); got != tc.doing {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.doing)
		}
	}
}

func TestReplaceAlwaysPuts(t *testing.T) {
	there := []entry{has(me, "a", "172.30.0.9"), has(other, "x", "172.30.0.2"), has(me, "b", "172.30.0.20"), has(other, "c", "172.30.0.3")}
	got := replace(me, testBridge, rulesOf("a", "172.30.0.2"), there).String()
	if want := "-a@172.30.0.9 -x@172.30.0.2 +a@172.30.0.2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := replace(me, testBridge, rulesOf("b", "172.30.0.20"), there).String(); got != "-b@172.30.0.20 +b@172.30.0.20" {
		t.Errorf("%q: rules that are asked for are made anew", got)
	}
}

func TestCheckAll(t *testing.T) {
	a, b := rulesOf("a", "172.30.0.2"), rulesOf("b", "172.30.0.3")
	for _, tc := range []struct {
		name  string
		want  []Rules
		there []entry
		err   string
	}{
		{"two", []Rules{a, b}, nil, ""},
		{"an agent twice", []Rules{a, rulesOf("a", "172.30.0.3")}, nil, "given twice"},
		{"an address twice", []Rules{a, rulesOf("b", "172.30.0.2")}, nil, "given twice"},
		{"a bad one", []Rules{a, {Agent: "b"}}, nil, "not known"},
		{"another's living agent", []Rules{a}, []entry{has(other, "a", "172.30.0.9")}, "has rules of node/other already"},
		{"taken over with its address", []Rules{a}, []entry{has(other, "a", "172.30.0.2")}, ""},
	} {
		err := checkAll(me, testBridge, tc.want, tc.there)
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
		}
	}
}

func TestMergeSeesHalves(t *testing.T) {
	a, b, c := has(me, "a", "172.30.0.3"), has(me, "b", "172.30.0.2"), has(other, "c", "172.30.0.4")
	twoMinds := a
	twoMinds.digest = "0"
	got := merge([]entry{a, b}, []entry{b, twoMinds, c})
	forwardOnly, inputOnly := a, c
	forwardOnly.hooks, inputOnly.hooks, twoMinds.hooks = hookForward, hookInput, hookInput
	want := []entry{b, forwardOnly, twoMinds, inputOnly}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(entry{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// TestStale is CT-27: what nobody alive holds, whoever made it, on this bridge only.
func TestStale(t *testing.T) {
	far := has(other, "f", "172.30.0.5").Agent
	far.Bridge = "br-other"
	there := []Agent{has(me, "a", "172.30.0.2").Agent, has(other, "b", "172.30.0.3").Agent, has(other, "c", "172.30.0.4").Agent, far}
	alive := map[string]bool{"172.30.0.2": true, "172.30.0.4": true}
	got := Stale(testBridge, there, func(a Agent) bool { return alive[a.Addr.String()] })
	if len(got) != 1 || got[0] != there[1] {
		t.Errorf("stale: %v", got)
	}
}
