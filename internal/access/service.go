package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Errors that callers tell apart.
var (
	ErrUnauthenticated = errors.New("invalid or expired token")
	ErrUnavailable     = errors.New("authentication unavailable") // the store could not be asked: never a pass (ADM-1)
	ErrRateLimited     = errors.New("too many failed logins from this address, wait a minute")
	ErrForbidden       = errors.New("forbidden")
	ErrLastOwner       = errors.New("this is the last usable owner token; create another one first")
	ErrNotFound        = errors.New("not found")
	ErrInvalid         = errors.New("invalid")
)

// missing is an ErrNotFound that says what is not there.
type missing string

// Error implements error.
func (m missing) Error() string { return "there is no " + string(m) + " that could be revoked" }

// Unwrap makes it an ErrNotFound.
func (missing) Unwrap() error { return ErrNotFound }

// wrapUnlessMissing says what failed, unless the error is a whole sentence for the caller.
func wrapUnlessMissing(what string, err error) error {
	var m missing
	if err == nil || errors.As(err, &m) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Service authenticates, and keeps tokens, sessions and the audit log. Run writes what is recorded lazily.
type Service struct {
	st      *store.Store
	env     service.Env
	log     *slog.Logger
	limiter limiter
	audit   auditQueue
	wake    *service.Wake

	mu      sync.Mutex
	touched map[string]int64 // last use of admin tokens, not written yet
	written map[string]int64 // last use as written, so that busy tokens are written once a minute
}

// New returns the service.
func New(st *store.Store, env service.Env, log *slog.Logger) *Service {
	return &Service{
		st: st, env: env, log: log.With("component", "access"), wake: service.NewWake(),
		limiter: limiter{seen: map[string]window{}}, touched: map[string]int64{}, written: map[string]int64{},
	}
}

// HashToken is how every random token is stored: SHA-256 in hex. The tokens have 256 random bits, so neither salt nor a
// slow hash adds anything.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func newToken() (token, hash string) {
	token = ci.RandomHex(32)
	return token, HashToken(token)
}

// Authenticate returns who the bearer token belongs to. With an address in the context (WithAddress) failures beyond
// 20 a minute are ErrRateLimited.
func (s *Service) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	row, err := s.tokenByHash(ctx, HashToken(bearer))
	if err != nil {
		return Principal{}, s.failedLogin(ctx, err)
	}
	s.touch(row.ID)
	return principalOf(row, KindAPIKey), nil
}

func (s *Service) tokenByHash(ctx context.Context, hash string) (db.AdminToken, error) {
	row, err := s.st.Read().AdminTokenByHash(ctx, hash)
	if err != nil {
		return db.AdminToken{}, lookupError(err)
	}
	if subtle.ConstantTimeCompare([]byte(row.TokenHash), []byte(hash)) != 1 || !usable(row, s.env.NowMs()) {
		return db.AdminToken{}, ErrUnauthenticated
	}
	return row, nil
}

func lookupError(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrUnauthenticated
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func usable(row db.AdminToken, now int64) bool {
	return !row.RevokedAt.Valid && (!row.ExpiresAt.Valid || row.ExpiresAt.Int64 > now)
}

func principalOf(row db.AdminToken, kind string) Principal {
	return Principal{
		TokenID: row.ID, OrgID: row.OrgID, Label: row.Label, Role: Role(row.Role), RoutingKey: row.RoutingKey.String, Kind: kind,
	}
}

// touchEvery bounds how often the last use of one token is written.
const touchEvery = time.Minute

func (s *Service) touch(tokenID string) {
	now := s.env.NowMs()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.written[tokenID] >= touchEvery.Milliseconds() {
		s.touched[tokenID] = now
	}
}

const (
	flushEvery = 2 * time.Second
	sweepEvery = time.Minute
)

// Run writes audit rows and last uses, and forgets old failures, until ctx ends; then it writes the rest.
func (s *Service) Run(ctx context.Context) error {
	var swept time.Time
	loop := service.Loop{
		Name: "access", Interval: flushEvery, Wake: s.wake, Log: s.log,
		Tick: func(ctx context.Context) error {
			if s.env.Now().Sub(swept) >= sweepEvery {
				s.limiter.sweep(s.env.Now())
				swept = s.env.Now()
			}
			return s.flush(ctx)
		},
	}
	err := loop.Run(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if flushErr := s.flush(last); flushErr != nil {
		s.log.Error("write last audit rows", "err", flushErr)
	}
	return err
}

// flush writes what waits, some hundred rows at a time.
func (s *Service) flush(ctx context.Context) error {
	for {
		more, err := s.flushSome(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// flushSome writes audit rows and last uses in one transaction.
func (s *Service) flushSome(ctx context.Context) (more bool, err error) {
	entries, more := s.audit.take()
	s.mu.Lock()
	touched := s.touched
	s.touched = map[string]int64{}
	s.mu.Unlock()
	if len(entries) == 0 && len(touched) == 0 {
		return false, nil
	}
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		for id, at := range touched {
			if err := tx.TouchAdminToken(ctx, nullInt(at), id); err != nil {
				return err
			}
		}
		for _, e := range entries {
			if err := tx.InsertAccessLog(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.audit.putBack(entries)
		s.touchAgain(touched)
		return false, fmt.Errorf("write audit rows: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range touched {
		s.written[id] = at
	}
	return more, nil
}

// touchAgain keeps last uses whose write failed for the next attempt.
func (s *Service) touchAgain(touched map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range touched {
		s.touched[id] = max(s.touched[id], at)
	}
}

// CleanAgentTokens removes the tokens of agents that are gone, or of which there is no row at all, and says how many there were. An agent's
// own end takes its token away; these are what an end in several pieces has left. It is a duty of the leader.
func (s *Service) CleanAgentTokens(ctx context.Context, term int64) (n int64, err error) {
	err = s.st.Lead(ctx, term, func(tx *store.Tx) error {
		n, err = tx.DeleteAgentTokensOfGone(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("delete tokens of agents that are gone: %w", err)
	}
	return n, nil
}

// CleanTokens removes credentials that can never be used again: sessions, links and remembered requests whose time is over. It is a duty of the
// leader.
func (s *Service) CleanTokens(ctx context.Context, term int64) (report []string, err error) {
	err = s.st.Lead(ctx, term, func(tx *store.Tx) error {
		report = nil
		now := tx.Now()
		for _, x := range []struct {
			words  string
			delete func() (int64, error)
		}{
			{"sessions", func() (int64, error) { return tx.DeleteExpiredWebSessions(ctx, now) }},
			{"login links", func() (int64, error) { return tx.DeleteExpiredLoginLinks(ctx, now) }},
			{"remembered requests", func() (int64, error) { return tx.DeleteExpiredIdempotencyKeys(ctx, now) }},
		} {
			n, err := x.delete()
			if err != nil {
				return fmt.Errorf("delete %s: %w", x.words, err)
			}
			if n > 0 {
				report = append(report, fmt.Sprintf("deleted %d %s", n, x.words))
			}
		}
		return nil
	})
	return report, err
}

func nullInt(v int64) sql.NullInt64 { return sql.NullInt64{Int64: v, Valid: true} }
