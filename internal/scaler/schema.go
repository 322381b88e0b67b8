package scaler

import (
	"encoding/json"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// object is a JSON Schema.
type object = map[string]any

// Schema is the JSON Schema (draft 7) of scalers.yaml with these kinds of backends, for editors. It catches most mistakes; LoadConfig
// catches all.
func Schema(kinds []backend.Kind) []byte {
	entries := make([]any, len(kinds))
	types := make([]any, len(kinds))
	for i, k := range kinds {
		types[i] = k.Type
		entries[i] = object{
			"if":   object{"properties": object{"type": object{"const": k.Type}}, "required": []string{"type"}},
			"then": object{"properties": withOwn(entryProperties(k), k.Keys), "additionalProperties": false},
		}
	}
	root := object{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "scalers.yaml of kici",
		"type": "object", "additionalProperties": false, "required": []string{"version"},
		"properties": object{
			"version":           about(object{"const": 1}, "always 1"),
			"globalMaxAgents":   about(positive(), "agents of this server together; 50 when it is not given"),
			"globalResourceCap": about(capSchema(), "cap on the sum of what the agents of this server have reserved"),
			"defaults":          closed(object{"resources": about(resourcesSchema(), "of label sets without any")}),
			"machinePools":      list(closed(object{"name": name(), "cap": capSchema()}, "name")),
			"firecracker":       object{"type": "object"},
			"scalers": about(list(object{
				"type": "object", "required": []string{"name", "type", "maxAgents", "labelSets"},
				"properties": object{"name": name(), "type": about(object{"enum": types}, "the backend")}, "allOf": entries,
			}), "what starts agents; their order decides between equals"),
		},
	}
	text, _ := json.MarshalIndent(root, "", "  ") // maps, lists, texts and numbers always encode
	return append(text, '\n')
}

func entryProperties(k backend.Kind) object {
	return object{
		"name": name(), "type": object{"const": k.Type},
		"maxAgents":           about(positive(), "agents of this scaler at once"),
		"maxConcurrentSpawns": about(positive(), "launches at the same time: a throttle, not a cap; 8 when it is not given"),
		"labelSets":           about(object{"type": "array", "minItems": 1, "items": setSchema(k)}, "what its agents offer"),
		"orchestratorUrl":     about(object{"type": "string", "pattern": "^(wss?|https?)://"}, "where its agents connect; the server's own address when it is not given"),
		"warmPool": closed(object{
			"enabled": boolean(), "size": object{"type": "integer", "minimum": 0}, "idleTimeoutSeconds": positive(),
		}),
		"mandatoryLabels": about(labels(0), "the gate: labels that a job must name to get here"),
		"platform":        closed(object{"os": object{"enum": []string{"linux", "macos", "windows"}}, "arch": object{"enum": []string{"x64", "arm64"}}}),
		"roles":           list(object{"enum": []string{"builder", "init-runner", "all"}}),
		"resourceCap":     about(capSchema(), "cap on the sum of what this scaler's agents have reserved"),
		"machinePool":     about(name(), "one of machinePools"),
		"minFreeDisk":     about(memory(), "free space of its agents' disk below which it starts nothing; 256m when it is not given"),
	}
}

func setSchema(k backend.Kind) object {
	return closed(withOwn(object{
		"labels":           about(labels(1), "what a job names in runs-on"),
		"resources":        about(resourcesSchema(), "what a job reserves here that has none of its own"),
		"env":              about(object{"type": "object", "propertyNames": object{"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}, "additionalProperties": object{"type": []string{"string", "number", "boolean"}}}, "variables of its agents"),
		"networkPolicy":    closed(object{"allowlist": list(text()), "denyAll": boolean(), "hostAccess": list(text())}),
		"backpressureMode": object{"enum": []string{"pause", "drop"}},
	}, k.SetKeys), "labels")
}

// withOwn adds a kind's own keys.
func withOwn(properties object, keys []backend.Key) object {
	for _, k := range keys {
		var s object
		switch k.Type {
		case backend.KeyBool:
			s = boolean()
		case backend.KeyInt:
			s = positive()
		case backend.KeyStrings:
			s = list(text())
		case backend.KeyString:
			s = object{"type": []string{"string", "number"}} // runAs may be a number
		}
		if k.Doc != "" {
			s = about(s, k.Doc)
		}
		properties[k.Name] = s
	}
	return properties
}

func resourcesSchema() object {
	side := closed(amounts())
	return closed(object{"cpus": amounts()["cpus"], "memory": amounts()["memory"], "requests": side, "limits": side})
}

func amounts() object { return object{"cpus": cpus(), "memory": memory()} }

func cpus() object { return object{"type": "number", "exclusiveMinimum": 0, "maximum": 256} }

func memory() object {
	return about(object{"type": []string{"string", "integer"}, "pattern": "^[0-9.]+[kKmMgG]?$"}, "a number with k, m or g: powers of 1024")
}

func capSchema() object {
	return closed(object{"maxCpu": object{"type": "number", "exclusiveMinimum": 0}, "maxMemory": memory()})
}

func closed(properties object, required ...string) object {
	s := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func about(s object, text string) object { s["description"] = text; return s }

func list(items object) object { return object{"type": "array", "items": items} }
func text() object             { return object{"type": "string"} }
func boolean() object          { return object{"type": "boolean"} }
func positive() object         { return object{"type": "integer", "minimum": 1} }

func name() object { return object{"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"} }

func labels(least int) object {
	return object{"type": "array", "minItems": least, "items": object{"type": []string{"string", "number"}, "not": object{"pattern": "^[kK][iI][cC][iI]:"}}}
}
