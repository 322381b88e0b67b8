package access

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// A session lives this long after its last use; to save writes it is extended when this much of that has passed.
const (
	SessionLife   = 12 * time.Hour
	sessionExtend = 15 * time.Minute
	// LinkLife is how long a one-time login link may be redeemed.
	LinkLife = 10 * time.Minute
)

// sessionData is what a session row says.
type sessionData struct {
	AdminTokenID string `json:"admin_token_id"`
}

// NewSession signs in with an admin token and returns the secret for the cookie. An address (WithAddress) that has failed
// too often is refused unheard.
func (s *Service) NewSession(ctx context.Context, bearer string) (session string, err error) {
	if err := s.throttled(ctx); err != nil {
		return "", err
	}
	p, err := s.Authenticate(ctx, bearer)
	if err != nil {
		return "", err
	}
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		session, err = insertSession(ctx, tx, p.TokenID)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%w: create session: %w", ErrUnavailable, err)
	}
	return session, nil
}

func insertSession(ctx context.Context, tx *store.Tx, tokenID string) (string, error) {
	session, hash := newToken()
	data, err := json.Marshal(sessionData{AdminTokenID: tokenID})
	if err != nil {
		return "", err
	}
	return session, tx.InsertWebSession(ctx, hash, data, tx.Now()+SessionLife.Milliseconds())
}

// Session returns who a cookie belongs to and keeps the session alive. It ends with its token.
func (s *Service) Session(ctx context.Context, session string) (Principal, error) {
	hash := HashToken(session)
	row, err := s.st.Read().WebSession(ctx, hash)
	if err != nil {
		return Principal{}, s.failedLogin(ctx, lookupError(err))
	}
	now := s.env.NowMs()
	if row.ExpiresAt <= now {
		return Principal{}, ErrUnauthenticated
	}
	var data sessionData
	if err := json.Unmarshal(row.Data, &data); err != nil {
		return Principal{}, ErrUnauthenticated
	}
	token, err := s.st.Read().AdminToken(ctx, data.AdminTokenID)
	if err != nil {
		return Principal{}, lookupError(err)
	}
	if !usable(token, now) {
		return Principal{}, ErrUnauthenticated
	}
	s.touch(token.ID)
	if until := now + SessionLife.Milliseconds(); until-row.ExpiresAt >= sessionExtend.Milliseconds() {
		if err := s.st.Write(ctx, func(tx *store.Tx) error { return tx.ExtendWebSession(ctx, until, hash) }); err != nil {
			s.log.Warn("extend session", "err", err) // it is still good
		}
	}
	return principalOf(token, KindUser), nil
}

// EndSession signs out. Ending an unknown session is no error.
func (s *Service) EndSession(ctx context.Context, session string) error {
	return s.st.Write(ctx, func(tx *store.Tx) error { return tx.DeleteWebSession(ctx, HashToken(session)) })
}

// CreateLoginLink makes the secret of a link that signs in once with the token's rights.
func (s *Service) CreateLoginLink(ctx context.Context, tokenID string) (secret string, err error) {
	secret, hash := newToken()
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		row, err := tx.AdminToken(ctx, tokenID)
		if errors.Is(err, sql.ErrNoRows) || (err == nil && !usable(row, tx.Now())) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		return tx.InsertLoginLink(ctx, hash, tokenID, tx.Now()+LinkLife.Milliseconds())
	})
	if err != nil {
		return "", fmt.Errorf("create login link: %w", err)
	}
	return secret, nil
}

// RedeemLogin uses up a login link and signs in. Of two at once one succeeds; the link is used up only together with the
// session that it gives.
func (s *Service) RedeemLogin(ctx context.Context, secret string) (session string, p Principal, err error) {
	if err := s.throttled(ctx); err != nil {
		return "", Principal{}, err
	}
	var token db.AdminToken
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		tokenID, err := tx.ConsumeLoginLink(ctx, nullInt(tx.Now()), HashToken(secret))
		if errors.Is(err, sql.ErrNoRows) {
			return ErrUnauthenticated
		}
		if err != nil {
			return err
		}
		if token, err = tx.AdminToken(ctx, tokenID); err != nil {
			return err
		}
		if !usable(token, tx.Now()) {
			return ErrUnauthenticated
		}
		session, err = insertSession(ctx, tx, tokenID)
		return err
	})
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return "", Principal{}, s.failedLogin(ctx, ErrUnauthenticated)
	case err != nil:
		return "", Principal{}, fmt.Errorf("%w: redeem login link: %w", ErrUnavailable, err)
	}
	return session, principalOf(token, KindUser), nil
}
