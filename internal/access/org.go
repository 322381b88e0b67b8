package access

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Errors about organisations.
var (
	ErrNoOrg  = fmt.Errorf("organisation %w", ErrNotFound)
	ErrOrgIs  = errors.New("there is an organisation of that name already")
	ErrForOps = fmt.Errorf("%w: this concerns the whole cluster and needs a token of the organisation %q that is not limited to a source", ErrForbidden, DefaultOrg)
)

var orgSlug = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// nameKept bounds what people call an organisation.
const nameKept = 255

// NewOrg describes an organisation to create.
type NewOrg struct {
	ID   string // slug: 1 to 63 lower-case letters, digits and inner hyphens; it is part of webhook addresses and cannot change
	Name string // for people; may be empty
}

// CreateOrg makes an organisation and its first owner token, which is returned once (D2). One without an owner cannot come to be.
func (s *Service) CreateOrg(ctx context.Context, by Principal, n NewOrg) (token string, org db.Org, err error) {
	switch {
	case !by.Operates():
		return "", db.Org{}, ErrForOps
	case !orgSlug().MatchString(n.ID):
		return "", db.Org{}, fmt.Errorf("%w: the organisation %q: use 1 to 63 lower-case letters, digits and inner hyphens", ErrInvalid, cut(n.ID))
	case utf8.RuneCountInString(n.Name) > nameKept:
		return "", db.Org{}, fmt.Errorf("%w: the name of an organisation has at most %d characters", ErrInvalid, nameKept)
	}
	if err := by.Require(TokenManage); err != nil {
		return "", db.Org{}, err
	}
	token, hash := newToken()
	id := s.env.NewID()
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		made, err := tx.CreateOrg(ctx, n.ID, tx.Now(), strings.TrimSpace(n.Name))
		if err != nil {
			return err
		}
		if made == 0 {
			return ErrOrgIs
		}
		if _, err := tx.InsertAdminToken(ctx, db.InsertAdminTokenParams{
			ID: id, OrgID: n.ID, Label: "first owner", Role: string(Owner), TokenHash: hash, CreatedAt: tx.Now(),
		}); err != nil {
			return err
		}
		org, err = tx.Org(ctx, n.ID)
		return err
	})
	if errors.Is(err, ErrOrgIs) {
		return "", db.Org{}, err
	}
	if err != nil {
		return "", db.Org{}, fmt.Errorf("create organisation: %w", err)
	}
	return token, org, nil
}

// Orgs returns the organisations that the principal may know of: all for who operates the cluster, else its own.
func (s *Service) Orgs(ctx context.Context, by Principal) ([]db.Org, error) {
	if !by.Operates() {
		org, err := s.Org(ctx, by.OrgID)
		return []db.Org{org}, err
	}
	rows, err := s.st.Read().Orgs(ctx)
	if err != nil {
		return nil, fmt.Errorf("read organisations: %w", err)
	}
	return rows, nil
}

// Org returns one organisation, or ErrNoOrg.
func (s *Service) Org(ctx context.Context, id string) (db.Org, error) {
	row, err := s.st.Read().Org(ctx, id)
	if errors.Is(err, sql.ErrNoRows) {
		return db.Org{}, ErrNoOrg
	}
	if err != nil {
		return db.Org{}, fmt.Errorf("read organisation: %w", err)
	}
	return row, nil
}

// Act returns the principal as it acts in another organisation, which only an owner or admin who operates the cluster may.
// Its role stays; both organisations are known afterwards, for the access log.
func (s *Service) Act(ctx context.Context, p Principal, org string) (Principal, error) {
	if org == "" || org == p.OrgID {
		return p, nil
	}
	if !p.Operates() || p.Role.rank() < Admin.rank() {
		return p, fmt.Errorf("%w: only an owner or admin of the organisation %q, with a token that is not limited to a source, may act in another one", ErrForbidden, DefaultOrg)
	}
	if _, err := s.Org(ctx, org); err != nil {
		return p, err
	}
	p.Home, p.OrgID = p.home(), org
	return p, nil
}

// home is the organisation of the principal's token.
func (p Principal) home() string {
	if p.Home != "" {
		return p.Home
	}
	return p.OrgID
}

// Operates tells whether the principal may do what concerns the whole cluster: its token belongs to the operating
// organisation and is not limited to a source. What it may do there its role says.
func (p Principal) Operates() bool { return p.home() == DefaultOrg && !p.Scoped() }
