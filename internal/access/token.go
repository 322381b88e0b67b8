package access

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// NewToken describes an admin token to create.
type NewToken struct {
	Label      string // 1 to 255 characters
	Role       Role
	RoutingKey string // "" = every source
	ExpiresAt  int64  // 0 = never
	Subject    string // whom it stands for, at most 255 characters; nothing is decided by it
}

// CreateToken makes an admin token of the caller's organisation. The token itself is returned once and never stored.
// A caller gives at most its own role and scope (ADM-9).
func (s *Service) CreateToken(ctx context.Context, by Principal, n NewToken) (token string, row db.AdminToken, err error) {
	if err := s.checkNewToken(by, n); err != nil {
		return "", db.AdminToken{}, err
	}
	token, hash := newToken()
	id := s.env.NewID()
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.InsertAdminToken(ctx, db.InsertAdminTokenParams{
			ID: id, OrgID: by.OrgID, Label: n.Label, Role: string(n.Role), TokenHash: hash, RoutingKey: nullText(n.RoutingKey),
			CreatedAt: tx.Now(), ExpiresAt: sql.NullInt64{Int64: n.ExpiresAt, Valid: n.ExpiresAt != 0}, Subject: n.Subject,
		}); err != nil {
			return err
		}
		var err error
		row, err = tx.AdminToken(ctx, id)
		return err
	})
	if err != nil {
		return "", db.AdminToken{}, fmt.Errorf("create token: %w", err)
	}
	return token, row, nil
}

func (s *Service) checkNewToken(by Principal, n NewToken) error {
	length := utf8.RuneCountInString(n.Label)
	switch {
	case strings.TrimSpace(n.Label) == "" || length > 255:
		return fmt.Errorf("%w: label needs 1 to 255 characters", ErrInvalid)
	case utf8.RuneCountInString(n.Subject) > 255:
		return fmt.Errorf("%w: subject has more than 255 characters", ErrInvalid)
	case !n.Role.Valid():
		return fmt.Errorf("%w: role %q does not exist, use owner, admin or auditor", ErrInvalid, n.Role)
	case n.ExpiresAt != 0 && n.ExpiresAt <= s.env.NowMs():
		return fmt.Errorf("%w: the expiry lies in the past", ErrInvalid)
	case n.Role.rank() > by.Role.rank():
		return fmt.Errorf("%w: role %s cannot create a token of role %s", ErrForbidden, by.Role, n.Role)
	case !by.Sees(n.RoutingKey):
		return fmt.Errorf("%w: a token limited to %s cannot create one with a wider scope", ErrForbidden, by.RoutingKey)
	}
	return by.Require(TokenManage)
}

// ListTokens returns the organisation's admin tokens, revoked ones too.
func (s *Service) ListTokens(ctx context.Context, orgID string) ([]db.AdminToken, error) {
	return s.st.Read().AdminTokens(ctx, orgID)
}

// RevokeToken ends an admin token. The last usable owner token of an organisation stays (ErrLastOwner, ADM-9).
func (s *Service) RevokeToken(ctx context.Context, by Principal, id string) error {
	if err := by.Require(TokenManage); err != nil {
		return err
	}
	err := s.st.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.LockOrg(ctx, by.OrgID); err != nil { // two revocations at once must see each other
			return err
		}
		n, err := tx.RevokeAdminToken(ctx, nullInt(tx.Now()), id, by.OrgID)
		if err != nil {
			return err
		}
		if n == 0 {
			return missing("token " + id)
		}
		owners, err := tx.CountUsableOwnersOfOrg(ctx, by.OrgID, tx.Now())
		if err == nil && owners == 0 {
			return ErrLastOwner
		}
		return err
	})
	return wrapUnlessMissing("revoke token", err)
}

func nullText(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
