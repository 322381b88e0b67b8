package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/setting"
)

// What an organisation's setting dashboardWrites says of an operation. Everything else is enabled.
const (
	writeEncrypted = "encrypted" // only of a browser that came by TLS
	writeDisabled  = "disabled"
)

// write mounts what changes something. It cannot be called without an operation that an organisation may switch off, and refusals
// are recorded like the changes themselves (AUD-2); who calls page for it instead does not start.
func (s *server) write(pattern, operation string, need access.Permission, h func(http.ResponseWriter, *http.Request, caller) error, also ...func(caller) string) {
	if !strings.HasPrefix(pattern, "POST ") || !slices.Contains(setting.DashboardOperations(), operation) {
		panic("the write " + pattern + " needs an operation that dashboardWrites knows, not " + operation)
	}
	s.mount(route{pattern: pattern, operation: operation, need: need, also: append([]func(caller) string{func(c caller) string { return c.forbidden(operation) }}, also...)}, h)
}

// page mounts a page that changes nothing.
func (s *server) page(pattern string, need access.Permission, h func(http.ResponseWriter, *http.Request, caller) error, also ...func(caller) string) {
	if !strings.HasPrefix(pattern, "GET ") {
		panic(pattern + " changes something and has no operation")
	}
	s.mount(route{pattern: pattern, need: need, also: also}, h)
}

// forbidden says why the organisation does not let its dashboard do something, "" when it does.
func (c caller) forbidden(operation string) string {
	switch c.writes[operation] {
	case writeDisabled:
		return "The organisation has switched this off in the dashboard (dashboardWrites: " + operation + "). The command line and the API can do it."
	case writeEncrypted:
		if !c.secure {
			return "The organisation lets its dashboard do this only over TLS (dashboardWrites: " + operation + "), and this page came without."
		}
	}
	return ""
}

// offers tells whether a page shows a button: the caller has the right, and the organisation lets its dashboard do that.
func (c caller) offers(operation string, need access.Permission) bool {
	return c.Can(need) && c.forbidden(operation) == ""
}
