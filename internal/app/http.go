package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/web"
)

// Bounds of a request as a whole; rooms have tighter ones for bodies.
const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second
	idleTimeout    = 120 * time.Second
	maxHeaderBytes = 64 << 10
	maxBodyBytes   = 32 << 20
	pingTimeout    = 2 * time.Second
)

// surfaces are the rooms' handlers, below the base path.
type surfaces struct{ agents, webhooks, api, web http.Handler }

func (s *Server) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.With("component", "http").Handler(), slog.LevelDebug),
	}
}

// routes puts the surfaces together. Agents' sockets come first: nothing wraps them.
func (s *Server) routes(in surfaces) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", in.agents)
	mux.Handle("/api/v1/agent/", in.agents)
	rest := http.NewServeMux()
	rest.HandleFunc("GET /health", s.health)
	rest.HandleFunc("GET /ready", s.ready)
	rest.Handle("GET /metrics", s.metrics.Handler())
	rest.Handle("/webhook/", in.webhooks)
	for _, p := range []string{"/api/", "/cluster/", "/version", "/openapi.json", "/docs"} {
		rest.Handle(p, in.api)
	}
	rest.Handle("/", in.web)
	mux.Handle("/", obs.RequestIDs(s.env.NewID, s.fromClient(s.bounded(rest))))
	if s.o.BasePath == "" {
		return mux
	}
	outer := http.NewServeMux()
	outer.Handle(s.o.BasePath+"/", http.StripPrefix(s.o.BasePath, mux))
	outer.Handle(s.o.BasePath, http.RedirectHandler(s.o.BasePath+"/", http.StatusPermanentRedirect))
	outer.HandleFunc("GET /health", s.health) // probes know no base path
	outer.HandleFunc("GET /ready", s.ready)
	return outer
}

// fromClient puts the client's address in the place of a trusted proxy's, for the limit on failed logins and the allow-lists of
// sources (ING-11).
func (s *Server) fromClient(next http.Handler) http.Handler {
	trusted := s.tuning.Ingress.TrustedProxies
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addr := ingress.ClientAddr(r, trusted); addr.IsValid() {
			r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
		}
		next.ServeHTTP(w, r)
	})
}

// bounded limits bodies in size and time, and ends streams when the server stops.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		}
		if base := s.streams.Load(); base != nil {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(*base, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// health says that the process lives. It asks nobody (OBS-1).
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]string{"status": "ok", "version": obs.BuildVersion()})
}

// ready says whether work can be taken in, and what is missing if not (OBS-2).
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	failing := s.state.get()
	if failing == "" {
		ctx, cancel := context.WithTimeout(r.Context(), pingTimeout)
		defer cancel()
		if err := s.store.Ping(ctx); err != nil {
			failing = "database"
		}
	}
	disk := s.lookAtDisk()
	if failing == "" && disk == "fail" {
		failing = "disk"
	}
	body := map[string]any{"ready": failing == ""}
	if disk == "warn" {
		body["warnings"] = []string{"disk"}
	}
	if failing != "" {
		body["failing"] = failing
		answer(w, http.StatusServiceUnavailable, body)
		return
	}
	answer(w, http.StatusOK, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) dashboard(reads *read.Reads, steps read.LogReader) http.Handler {
	return web.New(web.Deps{
		Reads: reads, Logs: steps, Sessions: s.access, Audit: s.access, Actions: s.runs, Intake: s.ingress, Registry: s.registrations, Events: s.events, Settings: s.settings,
		Cluster: cluster.NewDirectory(s.store, s.data.InstanceID()), Jobs: s.periodic, People: s.access, Hub: s.store, Base: s.o.BasePath,
		Secure: s.secure, Log: s.log.With("component", "web"),
	})
}

// secure reports whether the browser came by TLS, so that cookies may be marked so.
func (s *Server) secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(s.o.PublicURL, "https://")
}
