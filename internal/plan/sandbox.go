package plan

import (
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Sandbox is what the jobs of an organisation may ask for beyond what a sandbox gives (settings sandboxAllowedCapabilities and
// sandboxAllowHostNetwork).
type Sandbox struct {
	Capabilities []string
	HostNetwork  bool
}

// denied says what of a job's wishes is not allowed, ” when all is.
func (s Sandbox) denied(want *lock.Sandbox) string {
	if want == nil {
		return ""
	}
	var over []string
	for _, name := range want.Capabilities {
		if !slices.Contains(s.Capabilities, name) {
			over = append(over, name)
		}
	}
	switch {
	case len(over) > 0:
		return "sandbox.capabilities: the organisation does not allow " + strings.Join(over, ", ") + " (setting sandboxAllowedCapabilities)"
	case want.Network == ci.NetworkHost && !s.HostNetwork:
		return "sandbox.network: the organisation does not allow the machine's network (setting sandboxAllowHostNetwork)"
	}
	return ""
}
