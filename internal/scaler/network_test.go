package scaler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
)

func networked(t *testing.T, isolates bool, policy string) (*Config, []Problem) {
	t.Helper()
	kind := backend.Kind{Type: "box", Isolates: isolates}
	text := "version: 1\nscalers:\n  - name: a\n    type: box\n    maxAgents: 1\n    labelSets:\n      - labels: [x]\n        networkPolicy: " + policy + "\n"
	return ParseConfig("scalers.yaml", []byte(text), LoadOptions{Kinds: []backend.Kind{kind}})
}

func TestNetworkPolicy(t *testing.T) {
	for _, tc := range []struct {
		policy, want, problem string
	}{
		{"{}", "", ""},
		{"{allowlist: [], denyAll: false}", "", ""},
		{"{allowlist: [10.1.2.3/16, 192.168.1.1/32], denyAll: true}", "denyAll, allowlist 10.1.0.0/16 192.168.1.1/32", ""},
		{"{hostAccess: ['*:4000', '172.30.0.1:53', 10.0.0.0/8]}", "hostAccess *:4000 172.30.0.1:53 10.0.0.0/8", ""},
		{"{hostAccess: }", "", ""},
		{"{hostAccess: []}", "hostAccess none", "nothing on this host over the network"}, // XS-107
		{"{allowlist: [0.0.0.0/0]}", "allowlist 0.0.0.0/0", "opens private networks"},
		{"{allowlist: [10.0.0.0/8, fd00::/8]}", "!", "8:49: scalers[0].labelSets[0].networkPolicy.allowlist[1]: must be an IPv4 network"},
		{"{hostAccess: ['*:99999']}", "!", `networkPolicy.hostAccess[0]: host access "*:99999": the port must be`},
		{"{hostAccess: '*'}", "!", "must be a list"},
		{"{denyall: true}", "!", `did you mean "denyAll"`},
		{"{allowlist: [" + strings.Repeat("10.0.0.0/8, ", 129) + "]}", "!", "at most 128 entries"},
	} {
		c, problems := networked(t, true, tc.policy)
		if said := fmt.Sprint(problems); tc.problem == "" && len(problems) > 0 || !strings.Contains(said, tc.problem) {
			t.Errorf("%.60s: %s, want %q", tc.policy, said, tc.problem)
		}
		got := "!"
		if c != nil {
			got = c.Scalers[0].Backend().Sets[0].Network.String()
		}
		if got != tc.want {
			t.Errorf("%.60s: %q, want %q", tc.policy, got, tc.want)
		}
	}
}

func TestNetworkPolicyWithoutIsolation(t *testing.T) {
	c, problems := networked(t, false, "{denyAll: true}")
	if c == nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), "networkPolicy does nothing for agents of type box") {
		t.Errorf("%v", problems)
	}
	if c, problems := networked(t, false, "{hostAccess: ['::1']}"); c != nil {
		t.Errorf("an entry that is wrong passes: %v", problems)
	}
}

func TestReloadSaysWhatChangesInAPolicy(t *testing.T) {
	have, _ := networked(t, true, "{denyAll: true}")
	next, _ := networked(t, true, "{hostAccess: []}")
	got := fmt.Sprint(Compare(have, next, nil, nil).Changes[0].Fields)
	if want := "[{labelSets[0].networkPolicy denyAll hostAccess none false}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
