package workflow

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err = c.AddResource("workflow.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("workflow.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asValue(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSchemaAgreesWithTheCompiler: what compiles is valid by the schema, and what the schema can see is wrong is refused.
func TestSchemaAgreesWithTheCompiler(t *testing.T) {
	s := compiledSchema(t)
	starter, err := os.ReadFile("../cli/workflowcmd/starter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(asValue(t, starter)); err != nil {
		t.Errorf("starter: %v", err)
	}
	for _, name := range yamlFiles(t, "good") {
		if err := s.Validate(asValue(t, source(t, name).Data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const rest = "\njobs: {a: {runs-on: linux, steps: [{run: x}]}}"
	for _, text := range []string{
		"just text", "jobs: {}", "on: psuh" + rest, "on: {push: {branch: [a]}}" + rest, "on: push\nnaem: x" + rest,
		"on: push\njobs: {a: {runs-on: linux}}", "on: push\njobs: {a: {runs-on: linux, steps: [{name: x}]}}",
		"on: push\njobs: {a: {runs-on: linux, steps: [{run: x, uses: y}]}}", "on: {schedule: [{}]}" + rest,
		"on: push\ntimeout-minutes: 0" + rest, "on: {workflow_dispatch: {inputs: {a: {type: env}}}}" + rest,
	} {
		if s.Validate(asValue(t, []byte(text))) == nil {
			t.Errorf("valid by the schema: %s", text)
		}
		if f, _ := Compile([]Source{{Path: FilesDir + "/x.yaml", Data: []byte(text)}}); f != nil {
			t.Errorf("compiles: %s", text)
		}
	}
}

// TestSchemaKnowsTheSameKeys: the schema and the decoder list the same keys for every map.
func TestSchemaKnowsTheSameKeys(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	defs := root["definitions"].(map[string]any)
	// object finds the properties below a schema, through its alternatives.
	var object func(v any) map[string]any
	object = func(v any) map[string]any {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		if p, ok := m["properties"].(map[string]any); ok {
			return p
		}
		for _, k := range []string{"oneOf", "allOf"} {
			list, _ := m[k].([]any)
			for _, e := range list {
				if p := object(e); p != nil {
					return p
				}
			}
		}
		return nil
	}
	def := func(name string) map[string]any { return object(defs[name]) }
	triggers, job, step := def("triggers"), def("job"), def("step")
	inputs := object(triggers["workflow_dispatch"])["inputs"].(map[string]any)["oneOf"].([]any)[1].(map[string]any)["patternProperties"].(map[string]any)
	var input map[string]any
	for _, v := range inputs {
		input = object(v)
	}
	resources := map[string]any{}
	for _, alternative := range defs["resources"].(map[string]any)["oneOf"].([]any) {
		for k, v := range object(alternative) {
			resources[k] = v
		}
	}
	for name, c := range map[string]struct {
		keys  keys
		props map[string]any
	}{
		"workflow": {workflowKeys, object(root)}, "on": {onKeys, triggers}, "push": {pushKeys, object(triggers["push"])},
		"pull_request": {pullRequestKeys, object(triggers["pull_request"])}, "issue_comment": {commentKeys, object(triggers["issue_comment"])}, "dispatch": {dispatchKeys, object(triggers["workflow_dispatch"])},
		"input": {inputKeys, input}, "schedule": {scheduleKeys, object(triggers["schedule"])},
		"generic": {genericKeys, object(triggers["generic_webhook"])}, "event": {eventKeys, object(triggers["kici_event"])},
		"job": {jobKeys, job}, "runs-on": {runsOnKeys, object(job["runs-on"])}, "step": {stepKeys, step},
		"retry": {retryKeys, object(step["retry"])}, "strategy": {strategyKeys, def("strategy")}, "defaults": {defaultsKeys, def("defaults")},
		"defaults.run": {defaultsRunKeys, object(def("defaults")["run"])}, "concurrency": {concurrencyKeys, def("concurrency")},
		"container": {containerKeys, object(job["container"])}, "credentials": {credentialKeys, object(object(job["container"])["credentials"])}, "resources": {resourcesKeys, resources}, "side": {sideKeys, def("side")},
	} {
		got, want := sortedKeys(c.props), slices.Sorted(slices.Values(c.keys.known))
		if !slices.Equal(got, want) {
			t.Errorf("%s: schema %v, decoder %v", name, got, want)
		}
	}
	if strings.Contains(string(Schema()), "\t") {
		t.Error("tabs")
	}
}

// TestDocumentationIsComplete: docs/workflows.md names every key, trigger and function, and prints the phases as they are.
func TestDocumentationIsComplete(t *testing.T) {
	b, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, k := range []keys{
		workflowKeys, onKeys, pushKeys, pullRequestKeys, commentKeys, inputKeys, scheduleKeys, genericKeys, eventKeys, jobKeys, runsOnKeys, stepKeys,
		retryKeys, strategyKeys, concurrencyKeys, resourcesKeys,
		{known: kiciNames},
		{known: edgeWords},
		{known: []string{"contains", "startsWith", "endsWith", "format", "join", "toJSON", "fromJSON", "hashFiles", "success", "failure", "cancelled", "always"}},
	} {
		for _, key := range k.known {
			if !strings.Contains(doc, "`"+key) && !strings.Contains(doc, "{"+key) && !strings.Contains(doc, ", "+key) {
				t.Errorf("docs/workflows.md does not mention `%s` of %s", key, k.name)
			}
		}
	}
	for field, s := range map[string]scope{
		"`run-name`, workflow `concurrency`": scopeRun, "`strategy.matrix`": scopeRun,
		"job `name`, job `continue-on-error`": scopeRunJob, "job `if`": scopeReadyIf, "`runs-on`, job `concurrency`, `container.image`": scopeReady,
		"workflow `env`": scopeEnv, "job `env`, `defaults.run`, `container.env`": scopeJobEnv,
		"step `if`": scopeStepIf, "other step fields": scopeStep, "job `outputs`": scopeOutputs,
	} {
		row := "| " + field + " | " + s.Phase + " | " + strings.Join(s.Contexts, ", ") + " | "
		if s.Status {
			row += "status functions"
		}
		if s.Status && s.Files {
			row += ", "
		}
		if s.Files {
			row += "hashFiles"
		}
		if !strings.Contains(doc, strings.TrimRight(row, " ")) {
			t.Errorf("docs/workflows.md lacks the row\n%s", row)
		}
	}
}
