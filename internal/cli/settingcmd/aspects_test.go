package settingcmd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
)

func TestAspects(t *testing.T) {
	by := map[string]aspect{}
	for _, a := range aspects {
		by[a.name] = a
		for _, k := range a.keys {
			if !slices.Contains(client.OrgSettingNames, k) {
				t.Errorf("%s: %s is no setting", a.name, k)
			}
		}
		for _, v := range a.verbs {
			if !slices.Contains(a.keys, v.key) {
				t.Errorf("%s %s sets %s", a.name, v.name, v.key)
			}
		}
	}
	for args, want := range map[string]string{
		"queue-timeout set 600000":                          `{"queueTimeoutMs":600000}`,
		"queue-timeout set null":                            `{"queueTimeoutMs":null}`,
		"queue-timeout reset":                               `{"queueTimeoutMs":null}`,
		"queue-timeout set":                                 "",
		"queue-timeout set 1 2":                             "",
		"queue-timeout reset 1":                             "",
		"queue-timeout forget":                              "",
		"reroute set rerouteMaxHops=2":                      `{"rerouteMaxHops":2}`,
		"reroute set rerouteMaxHops 2":                      `{"rerouteMaxHops":2}`,
		"reroute set queueTimeoutMs=2":                      "",
		"reroute set 2":                                     "",
		"approval set-expiry 3600":                          `{"approvalExpirySeconds":3600}`,
		"approval set-expiry":                               "",
		"approval set-self-approval false":                  `{"allowSelfApproval":false}`,
		"approval reset":                                    `{"allowSelfApproval":null,"approvalExpirySeconds":null}`,
		"sandbox-allowlist set-capabilities CAP_A B":        `{"sandboxAllowedCapabilities":["CAP_A","B"]}`,
		"sandbox-allowlist allow-host-network true":         `{"sandboxAllowHostNetwork":true}`,
		"dashboard-writes set {}":                           `{"dashboardWrites":{}}`,
		"dashboard-writes set --op a=b --op c=d":            `{"dashboardWrites":{"a":"b","c":"d"}}`,
		"dashboard-writes set --op a":                       "",
		"dashboard-writes set {} --op a=b":                  "",
		"ingest-concurrency set 16":                         `{"ingestMaxConcurrency":16}`,
		"artifacts set artifactMaxPerRun=1 artifactTtlMs=2": `{"artifactMaxPerRun":1,"artifactTtlMs":2}`,
	} {
		words := strings.Fields(args)
		var rest, ops []string
		for i := 2; i < len(words); i++ {
			if words[i] == "--op" {
				i++
				ops = append(ops, words[i])
			} else {
				rest = append(rest, words[i])
			}
		}
		set, err := by[words[0]].change(words[1], rest, ops)
		got, _ := json.Marshal(set)
		if (err != nil) != (want == "") || err == nil && string(got) != want {
			t.Errorf("%s: %s %v, want %s", args, got, err, want)
		}
	}
}
