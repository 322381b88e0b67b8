package app

import (
	"context"
	"net"

	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store"
)

// Outside is what a server touches beyond its own memory and files, beside Options.Now, NewID and StoreHooks. The simulation gives
// all of it, so that many servers live in one process and in virtual time (D25); the zero value is the real world.
type Outside struct {
	Listen  func(context.Context) (net.Listener, error) // instead of a socket on Host and Port; its address is a *net.TCPAddr
	Kinds   []backend.Kind                              // instead of the backends that this machine has
	Sources map[string]ingress.Factory                  // by kind, instead of those of the same kind
	Rand    func(n int64) int64                         // for jitter, see service.Env
}

// Store is the server's database, for who passes notifications between simulated servers.
func (s *Server) Store() *store.Store { return s.store }
