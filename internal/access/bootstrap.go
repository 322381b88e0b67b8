package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// DefaultOrg is the organisation that the first start makes (D2).
const DefaultOrg = ci.DefaultOrg

// TokenFile is the file in the data directory with the first owner token (D12).
const TokenFile = "admin.token"

// BootstrapVariable sets the first owner token from outside (ADM-3).
const BootstrapVariable = "KICI_BOOTSTRAP_ADMIN_TOKEN"

// minimumGiven is the shortest token taken from BootstrapVariable; ours have 64 characters.
const minimumGiven = 32

var ownToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// Bootstrap makes the default organisation and, when no owner token is usable, one in <dataDir>/admin.token; created
// tells that it did. given is the value of BootstrapVariable, "" for none. The file comes before the row: a crash between them leaves a file whose token the next start
// registers, never a row whose token nobody knows. A token that was revoked or has expired is never revived.
func (s *Service) Bootstrap(ctx context.Context, dataDir, given string) (created bool, err error) {
	if given != "" && len(given) < minimumGiven {
		return false, fmt.Errorf("%s needs at least %d characters", BootstrapVariable, minimumGiven)
	}
	owned, err := s.hasOwner(ctx)
	if err != nil || owned {
		return false, wrapBootstrap(err)
	}
	path := filepath.Join(dataDir, TokenFile)
	token, err := s.bootstrapToken(ctx, path, given)
	if err != nil {
		return false, wrapBootstrap(err)
	}
	created, err = s.registerOwner(ctx, token)
	if err != nil {
		return false, wrapBootstrap(err)
	}
	if !created { // another node was faster: this token is nobody's
		return false, wrapBootstrap(os.Remove(path))
	}
	return true, nil
}

func wrapBootstrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("make first admin token: %w", err)
}

func (s *Service) hasOwner(ctx context.Context) (owned bool, err error) {
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		if err := tx.InsertOrg(ctx, DefaultOrg, tx.Now()); err != nil {
			return err
		}
		n, err := tx.CountUsableOwners(ctx, tx.Now())
		owned = n > 0
		return err
	})
	return owned, err
}

// bootstrapToken returns a token that stands in the file and has no row yet: the given one, the one of an earlier start
// that did not get further, or a new one.
func (s *Service) bootstrapToken(ctx context.Context, path, given string) (string, error) {
	inFile, err := ReadTokenFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	candidates := []string{given}
	if ownToken().MatchString(inFile) {
		candidates = append(candidates, inFile)
	}
	fresh, _ := newToken()
	for _, token := range append(candidates, fresh) {
		if token == "" {
			continue
		}
		switch known, err := s.knows(ctx, token); {
		case err != nil:
			return "", err
		case known: // it was revoked or has expired
			continue
		}
		if token == inFile {
			return token, nil
		}
		return token, writeTokenFile(path, token)
	}
	return "", errors.New("no new token could be made")
}

func (s *Service) knows(ctx context.Context, token string) (bool, error) {
	_, err := s.st.Read().AdminTokenByHash(ctx, HashToken(token))
	if err = lookup(err); err == nil {
		return true, nil
	}
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return false, err
}

// registerOwner inserts the token unless somebody else's owner token has appeared.
func (s *Service) registerOwner(ctx context.Context, token string) (created bool, err error) {
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		created = false
		if _, err := tx.LockOrg(ctx, DefaultOrg); err != nil { // nodes that start together take turns
			return err
		}
		n, err := tx.CountUsableOwners(ctx, tx.Now())
		if err != nil || n > 0 {
			return err
		}
		added, err := tx.InsertAdminToken(ctx, db.InsertAdminTokenParams{
			ID: s.env.NewID(), OrgID: DefaultOrg, Label: "bootstrap", Role: string(Owner), TokenHash: HashToken(token), CreatedAt: tx.Now(),
		})
		created = added > 0
		return err
	})
	return created, err
}

// ReadTokenFile returns the token in a file such as <data-dir>/admin.token.
func ReadTokenFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
