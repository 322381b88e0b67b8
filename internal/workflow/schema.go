package workflow

import _ "embed"

//go:embed schema.json
var schema string

// Schema is the JSON Schema (draft 7) of a workflow file, for editors. It catches most mistakes; kici validate catches all.
func Schema() []byte { return []byte(schema) }
