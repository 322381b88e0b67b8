package engineapi

import (
	"encoding/base64"
	"encoding/json"

	"github.com/moby/moby/api/types/registry"
)

// encodeAuth is how credentials travel to the engine.
func encodeAuth(a registry.AuthConfig) string {
	data, _ := json.Marshal(a) // texts always encode
	return base64.URLEncoding.EncodeToString(data)
}
