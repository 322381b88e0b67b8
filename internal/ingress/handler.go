package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
)

// readTimeout bounds how long a sender may take for its body.
const readTimeout = 30 * time.Second

// Handler serves POST /webhook/{org}/github/{source} for sources of GitHub (ING-7) and POST /webhook/{org}/generic/{name} for all
// others (ING-8).
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook/{org}/generic/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.receive(w, r, func(ctx context.Context) (*entry, error) {
			return s.byName(ctx, r.PathValue("org"), r.PathValue("name"))
		})
	})
	mux.HandleFunc("POST /webhook/{org}/github/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.receive(w, r, func(ctx context.Context) (*entry, error) {
			e, err := s.byNameOrID(ctx, r.PathValue("org"), r.PathValue("name"))
			if err == nil && e.row.Kind != source.KindGitHub {
				return nil, ErrNotFound
			}
			return e, err
		})
	})
	return mux
}

// finder looks up the source that a request is addressed to.
type finder func(context.Context) (*entry, error)

// answer is what a sender gets. Code decides how it is logged and counted.
type answer struct {
	Code       int    `json:"-"`
	RetryAfter int    `json:"-"` // seconds
	Accepted   bool   `json:"accepted,omitempty"`
	DeliveryID string `json:"deliveryId,omitempty"`
	ID         string `json:"id,omitempty"`
	Duplicate  bool   `json:"duplicate,omitempty"`
	Status     string `json:"status,omitempty"`
	RunID      string `json:"runId,omitempty"`
	Error      string `json:"error,omitempty"`
}

func refuse(code int, format string, args ...any) answer {
	return answer{Code: code, Error: fmt.Sprintf(format, args...)}
}

func (s *Service) receive(w http.ResponseWriter, r *http.Request, find finder) {
	a := s.answer(w, r, find)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if a.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(a.RetryAfter))
	}
	if a.Code == http.StatusRequestEntityTooLarge {
		h.Set("Connection", "close") // the rest of the body is not read
	}
	w.WriteHeader(a.Code)
	_ = json.NewEncoder(w).Encode(a)
}

func (s *Service) answer(w http.ResponseWriter, r *http.Request, find finder) answer {
	if !s.admission.enter() {
		return s.shed("in_flight", "too many requests at once", 1)
	}
	defer s.admission.leave()
	s.d.Metrics.IngestInFlight.Inc()
	defer s.d.Metrics.IngestInFlight.Dec()
	ctx, org, name := r.Context(), r.PathValue("org"), r.PathValue("name")
	e, err := find(ctx)
	if errors.Is(err, ErrNotFound) || err == nil && !e.row.Enabled {
		return refuse(http.StatusNotFound, "no such source, or it is disabled")
	} else if err != nil {
		s.log.Error("look up source", "org", org, "source", name, "err", err)
		return refuse(http.StatusInternalServerError, "the source could not be looked up; deliver again")
	}
	recv, ok := e.source.(source.Receiver)
	if e.err != nil || !ok {
		s.log.Error("source is not usable", "org", org, "source", name, "err", e.err)
		return refuse(http.StatusInternalServerError, "the source is not usable as it is configured; its operator can see why")
	}
	intake := recv.Intake()
	if ok, wait := s.admission.allow(e.row.ID, intake.RPM, s.d.Env.Now()); !ok {
		return s.shed("rate", fmt.Sprintf("more than %d requests a minute", intake.RPM), int(math.Ceil(wait.Seconds())))
	}
	if full, err := s.admission.full(ctx, s.d.Store.Read(), e.row.OrgID, s.d.Env.Now()); err != nil {
		s.log.Error("count open deliveries", "err", err)
		return refuse(http.StatusInternalServerError, "the delivery could not be stored; deliver again")
	} else if full {
		return s.shed(capFull, "too many deliveries are waiting", 5)
	}
	leave, refused := s.admission.place(ctx, e.row.OrgID, func() int { return s.limits().Concurrency(e.row.OrgID) })
	if refused != "" {
		return s.shed(refused, "too many deliveries of the organisation at once", 1)
	}
	defer leave()
	limit := s.d.Settings.MaxBodyBytes
	if source.OnForge(e.row.Kind) {
		limit = s.limits().ForgeBytes
	}
	return s.bounded(w, r, min(intake.MaxBody, limit), func(body []byte) answer {
		return s.verified(r, e, recv, source.Request{Header: r.Header, Body: body, Client: ClientAddr(r, s.d.Settings.TrustedProxies)})
	})
}

// verified goes on with a request whose body is here: authenticate, read, store.
func (s *Service) verified(r *http.Request, e *entry, recv source.Receiver, req source.Request) answer {
	if err := recv.Verify(req); errors.Is(err, source.ErrMisconfigured) {
		s.log.Error("source cannot verify", "source", e.row.Name, "err", err)
		return refuse(http.StatusInternalServerError, "the source's verification is not usable as it is configured")
	} else if err != nil {
		s.log.Warn("webhook refused", "org", e.row.OrgID, "source", e.row.Name, "client", req.Client.String(), "bytes", len(req.Body))
		return refuse(http.StatusUnauthorized, "the request is not signed by this source's secret")
	}
	got, err := recv.Read(req)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", strings.TrimPrefix(err.Error(), source.ErrInvalid.Error()+": "))
	}
	intake := recv.Intake()
	if len(intake.Allowed) > 0 && !slices.Contains(intake.Allowed, got.Event) {
		return answer{Code: http.StatusOK, Accepted: true, Status: "filtered"}
	}
	delete(got.Headers, source.TriggerHeader)
	acc, err := s.accept(r.Context(), e.row, got, s.repeatsOf(e.row, got, intake))
	if err != nil {
		s.log.Error("accept delivery", "source", e.row.Name, "err", err)
		return refuse(http.StatusInternalServerError, "the delivery could not be stored; deliver again")
	}
	out := answer{Code: http.StatusAccepted, Accepted: true, DeliveryID: acc.DeliveryID, ID: acc.ID, RunID: acc.RunID}
	if acc.Duplicate {
		out.Code, out.Duplicate = http.StatusOK, true
	}
	return out
}

// Limits are what may change while the server runs.
type Limits struct {
	ForgeBytes  int64                // largest body of a forge's delivery (ING-7)
	DedupTTL    time.Duration        // how long a sender's delivery id is remembered (ING-15)
	KeptBytes   int64                // largest body that stays with a delivery when it is done (ING-22)
	LockBytes   int64                // files of one commit's workflows together (LOCK-6)
	Claim       time.Duration        // a delivery is claimed for so long, and again while it is worked on (ING-18)
	Concurrency func(org string) int // deliveries of an organisation in reception at once (ING-19)
}

// What holds where nothing else is said.
const (
	usualDedup       = 24 * time.Hour
	usualKept        = 5 << 20
	usualConcurrency = 32
)

func (s *Service) limits() Limits {
	if s.d.Limits != nil {
		return s.d.Limits()
	}
	return Limits{
		ForgeBytes: s.d.Settings.MaxForgeBytes, DedupTTL: usualDedup, KeptBytes: usualKept, LockBytes: source.MaxFileBytes, Claim: s.d.Settings.Lease,
		Concurrency: func(string) int { return usualConcurrency },
	}
}

// known is a delivery whose id is remembered for the usual time.
func (s *Service) known() repeats { return repeats{withinMs: s.limits().DedupTTL.Milliseconds()} }

// repeats says what a delivery is that has the id of an earlier one.
type repeats struct {
	withinMs int64 // a duplicate, when the earlier one is not older
	forever  bool  // a duplicate whatever its age
	retries  bool  // when the earlier one failed, it is processed again
}

// repeatsOf: a forge signs an id that it made up itself and uses it again only for the very same delivery, so that a repeat is one
// for as long as the first is known: a request that somebody kept and sends again after a month starts nothing. Asked at the forge
// to deliver again what failed here, it is processed again (ING-23).
func (s *Service) repeatsOf(row db.Source, r source.Received, intake source.Intake) repeats {
	switch {
	case source.OnForge(row.Kind):
		return repeats{forever: true, retries: true}
	case r.Keyed:
		return repeats{withinMs: intake.DedupMs}
	}
	return s.known()
}

// capFull is the reason of what is shed because the buffer is at its maximum (XC-8).
const capFull = "cap_full"

// shed refuses a delivery that may come again. It has no row, so it is counted, and logged with those that came since (OBS-20).
func (s *Service) shed(reason, why string, retryAfter int) answer {
	a := refuse(http.StatusTooManyRequests, "%s; try again later", why)
	a.RetryAfter = retryAfter
	s.countShed(reason, why)
	return a
}

func (s *Service) countShed(reason, why string) {
	s.d.Metrics.WebhooksProcessed.WithLabelValues("shed").Inc()
	s.d.Metrics.IngestShed.WithLabelValues(reason).Inc()
	if n := s.admission.shedding(reason, s.d.Env.Now()); n > 0 {
		s.log.Warn("deliveries are refused", "reason", reason, "why", why, "count", n)
	}
}

// bounded reads a body of at most limit bytes, whatever the sender says about its length (XC-10), and goes on with it. All
// bodies in memory share a bound.
func (s *Service) bounded(w http.ResponseWriter, r *http.Request, limit int64, next func([]byte) answer) answer {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	weight := limit
	if r.ContentLength >= 0 {
		weight = r.ContentLength
	}
	weight = min(weight, s.d.Settings.MaxBodiesBytes)
	if !s.admission.bodies.TryAcquire(weight) {
		return s.shed("bytes", "too much is being received at once", 1)
	}
	defer s.admission.bodies.Release(weight)
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(s.d.Env.Now().Add(readTimeout))
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), max(r.ContentLength, 512)+1)
	_ = deadline.SetReadDeadline(time.Time{})
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case err != nil:
		return refuse(http.StatusBadRequest, "the body could not be read")
	}
	return next(body)
}

func tooLarge(limit int64) answer {
	return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", limit)
}

// readAll is io.ReadAll into a buffer that has the expected size from the start.
func readAll(r io.Reader, size int64) ([]byte, error) {
	b := make([]byte, 0, size)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF { //nolint:errorlint // readers return it bare
			return b, nil
		} else if err != nil {
			return b, err
		}
	}
}

// ClientAddr is the socket's address, or, when that is a trusted proxy, the last address of X-Forwarded-For that is not one
// (ING-11).
func ClientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	trusts := func(p netip.Prefix) bool { return p.Contains(addr) }
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && slices.ContainsFunc(trusted, trusts); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = next.Unmap()
	}
	return addr
}
