package scaler

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// TestSchemaAgreesWithTheLoader: what loads is valid by the schema, and what the schema can see is wrong does not load.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema(testKinds())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("scalers.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("scalers.json")
	if err != nil {
		t.Fatal(err)
	}
	const head = "version: 1\nscalers:\n"
	set := func(keys string) string {
		return head + "  - {name: a, type: bare-metal, maxAgents: 1, labelSets: [{labels: [x]" + keys + "}]}\n"
	}
	entry := func(keys string) string {
		return head + "  - {name: a, type: bare-metal, maxAgents: 1, labelSets: [{labels: [x]}]" + keys + "}\n"
	}
	for text, valid := range map[string]bool{
		DefaultConfig(DefaultOptions{CPUs: 4}): true,
		entry(", runAs: ci, allowRoot: true, workDir: /w, maxConcurrentSpawns: 3, roles: [all], resourceCap: {maxCpu: 1.5, maxMemory: 2g}"): true,
		entry(", platform: {os: linux, arch: arm64}, orchestratorUrl: 'wss://ci/ws', warmPool: {enabled: false, size: 0}"):                  true,
		set(", resources: {cpus: 1.5, memory: 2g}, env: {A: b, N: 1}, binaryPath: /bin/x, backpressureMode: drop"):                          true,
		set(", resources: {requests: {cpus: 1}, limits: {cpus: 2, memory: 4G}}, networkPolicy: {allowlist: [10.0.0.0/8], denyAll: true}"):   true,

		"scalers: []\n":                        false, // no version
		"version: 2\n":                         false,
		"version: 1\nglobalMaxAgents: 0\n":     false,
		entry(", maxAgnets: 3"):                false,
		entry(", maxConcurrentSpawns: 0"):      false,
		entry(", roles: [boss]"):               false,
		entry(", platform: {os: plan9}"):       false,
		entry(", orchestratorUrl: ftp://x"):    false,
		entry(", mandatoryLabels: ['kici:x']"): false,
		set(", resources: {cpus: 0}"):          false,
		set(", resources: {memory: lots}"):     false,
		set(", env: {'A B': c}"):               false,
		set(", resource: {cpus: 1}"):           false,
		head + "  - {name: a, type: kubernetes, maxAgents: 1, labelSets: [{labels: [x]}]}\n": false,
		head + "  - {name: a, type: bare-metal, labelSets: [{labels: [x]}]}\n":               false,
		head + "  - {name: a, type: bare-metal, maxAgents: 1, labelSets: []}\n":              false,
	} {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		config, problems := parse(t, text)
		if (config != nil) != valid {
			t.Errorf("the loader on\n%s%v", text, problems)
		}
		if err := schema.Validate(value); (err == nil) != valid {
			t.Errorf("the schema on\n%s%v", text, err)
		}
	}
}
