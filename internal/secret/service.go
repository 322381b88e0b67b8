package secret

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("secret not found")
	ErrInvalid  = errors.New("invalid")
	ErrReserved = errors.New("scopes that begin with __ belong to the orchestrator")
)

// maxValue bounds one value.
const maxValue = 64 << 10

const metaKeyVersion = "secret_key_version"

var (
	scopePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._@-]+(/[A-Za-z0-9._@-]+)*$`) })
	keyPattern   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,127}$`) })
)

// Info is what listings say of a secret: never its value (SEC-5).
type Info struct {
	Scope     string
	Key       string
	UpdatedAt int64
	Readable  bool // sealed with the key that this process has
}

// Service keeps secrets in the store. Scope "" holds the organisation's; "repo/<identifier>" those of one repository.
type Service struct {
	st   *store.Store
	keys *Keyring
}

// New returns the service.
func New(st *store.Store, keys *Keyring) *Service { return &Service{st: st, keys: keys} }

// Verify stops a start with a key that is not the cluster's: every coordinator needs the same one (SEC-2).
func (s *Service) Verify(ctx context.Context) error {
	var known string
	mine := fmt.Sprintf("%08x", s.keys.Version())
	err := s.st.Write(ctx, func(tx *store.Tx) error {
		if err := tx.InsertClusterMeta(ctx, metaKeyVersion, mine); err != nil {
			return err
		}
		var err error
		known, err = tx.ClusterMeta(ctx, metaKeyVersion)
		return err
	})
	if err != nil {
		return fmt.Errorf("verify master key: %w", err)
	}
	if known != mine {
		return fmt.Errorf("the master key (%s) is not the one that this database was sealed with (%s): set %s or restore %s from "+
			"the first coordinator's data directory", mine, known, KeyVariable, KeyFile)
	}
	return nil
}

// Set stores a value under a name that callers may use.
func (s *Service) Set(ctx context.Context, org, scope, key, value string) error {
	if err := checkCaller(scope); err != nil {
		return err
	}
	return s.SetSystem(ctx, org, scope, key, value)
}

// SetSystem is Set for the orchestrator itself, which may also use scopes that begin with __.
func (s *Service) SetSystem(ctx context.Context, org, scope, key, value string) error {
	err := s.st.Write(ctx, func(tx *store.Tx) error { return s.Put(ctx, tx, Name{org, scope, key}, value) })
	if err != nil && !errors.Is(err, ErrInvalid) {
		return fmt.Errorf("set secret: %w", err)
	}
	return err
}

// Name is a secret's identity.
type Name struct{ Org, Scope, Key string }

func (n Name) identity() string { return n.Org + "|" + n.Scope + "|" + n.Key }

// Put is SetSystem inside the caller's transaction, so that a source and its secret appear together.
func (s *Service) Put(ctx context.Context, tx *store.Tx, n Name, value string) error {
	if err := check(n, value); err != nil {
		return err
	}
	sealed, err := s.keys.Seal(n.identity(), []byte(value))
	if err != nil {
		return err
	}
	return tx.UpsertSecret(ctx, db.UpsertSecretParams{
		OrgID: n.Org, Scope: n.Scope, Key: n.Key, Sealed: sealed, KeyVersion: s.keys.Version(), UpdatedAt: tx.Now(),
	})
}

// List names the organisation's secrets, without those of the orchestrator.
func (s *Service) List(ctx context.Context, org string) ([]Info, error) {
	rows, err := s.st.Read().SecretNames(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	out := []Info{}
	for _, r := range rows {
		if !reserved(r.Scope) {
			out = append(out, Info{Scope: r.Scope, Key: r.Key, UpdatedAt: r.UpdatedAt, Readable: r.KeyVersion == s.keys.Version()})
		}
	}
	return out, nil
}

// Delete removes a secret; ErrNotFound when there is none.
func (s *Service) Delete(ctx context.Context, org, scope, key string) error {
	if err := checkCaller(scope); err != nil {
		return err
	}
	return s.DeleteSystem(ctx, org, scope, key)
}

// DeleteSystem is Delete for the orchestrator itself.
func (s *Service) DeleteSystem(ctx context.Context, org, scope, key string) error {
	return s.st.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.DeleteSecret(ctx, org, scope, key)
		if err == nil && n == 0 {
			return ErrNotFound
		}
		return err
	})
}

// DropScope removes every secret of a scope inside the caller's transaction.
func (s *Service) DropScope(ctx context.Context, tx *store.Tx, org, scope string) error {
	_, err := tx.DeleteSecretScope(ctx, org, scope)
	return err
}

// Drop removes one secret inside the caller's transaction; there need be none.
func (s *Service) Drop(ctx context.Context, tx *store.Tx, n Name) error {
	_, err := tx.DeleteSecret(ctx, n.Org, n.Scope, n.Key)
	return err
}

// Value is one opened secret.
type Value struct {
	Text      string
	UpdatedAt int64 // UTC milliseconds
}

// Open returns every secret of one scope, by key, for the orchestrator's own use.
func (s *Service) Open(ctx context.Context, org, scope string) (map[string]Value, error) {
	rows, err := s.st.Read().SecretsOfScope(ctx, org, scope)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	out := make(map[string]Value, len(rows))
	for _, row := range rows {
		text, err := s.open(row)
		if err != nil {
			return nil, err
		}
		out[row.Key] = Value{text, row.UpdatedAt}
	}
	return out, nil
}

// Get returns one value for the orchestrator's own use; ErrNotFound when there is none.
func (s *Service) Get(ctx context.Context, org, scope, key string) (string, error) {
	row, err := s.st.Read().Secret(ctx, org, scope, key)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%s: %w", describe(scope, key), ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return s.open(row)
}

// Resolve returns the organisation's secrets for a job. One that cannot be opened fails it: a job never runs without a
// secret that it was meant to have.
func (s *Service) Resolve(ctx context.Context, org string) (map[string]string, error) {
	return s.ResolveFor(ctx, org, "")
}

// ResolveFor is Resolve with the secrets of one repository on top (the longer scope wins, SEC-8).
func (s *Service) ResolveFor(ctx context.Context, org, repo string) (map[string]string, error) {
	out := map[string]string{}
	err := s.st.Snapshot(ctx, func(tx *store.Tx) error {
		clear(out)
		scopes := []string{""}
		if repo != "" {
			scopes = append(scopes, RepoScope(repo))
		}
		for _, scope := range scopes {
			rows, err := tx.SecretsOfScope(ctx, org, scope)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if out[row.Key], err = s.open(row); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("resolve secrets: %w", err)
	}
	return out, nil
}

// RepoScope is the scope of a repository's own secrets.
func RepoScope(identifier string) string { return "repo/" + strings.Trim(identifier, "/") }

func (s *Service) open(row db.Secret) (string, error) {
	plain, err := s.keys.Open(Name{row.OrgID, row.Scope, row.Key}.identity(), row.Sealed)
	if err != nil {
		return "", fmt.Errorf("%s: %w", describe(row.Scope, row.Key), err)
	}
	return string(plain), nil
}

func describe(scope, key string) string {
	if scope == "" {
		return "secret " + key
	}
	return "secret " + scope + "/" + key
}

func reserved(scope string) bool { return strings.HasPrefix(scope, "__") }

// checkCaller refuses what only the orchestrator may touch (SEC-6).
func checkCaller(scope string) error {
	if reserved(scope) {
		return fmt.Errorf("%w: %w", ErrInvalid, ErrReserved)
	}
	return nil
}

func check(n Name, value string) error {
	switch {
	case n.Scope != "" && (len(n.Scope) > 255 || !scopePattern().MatchString(n.Scope) || hasDots(n.Scope)):
		return fmt.Errorf("%w: scope %q: use segments of letters, digits and . _ @ - between slashes, at most 255 characters", ErrInvalid, n.Scope)
	case !keyPattern().MatchString(n.Key):
		return fmt.Errorf("%w: secret name %q: use up to 128 letters, digits, _ and -, not beginning with a digit or -", ErrInvalid, n.Key)
	case strings.HasPrefix(n.Key, "__"):
		return fmt.Errorf("%w: secret name %q: names that begin with __ belong to the orchestrator", ErrInvalid, n.Key)
	case len(value) > maxValue:
		return fmt.Errorf("%w: the value has %d bytes, at most %d are allowed", ErrInvalid, len(value), maxValue)
	}
	return nil
}

func hasDots(scope string) bool {
	for segment := range strings.SplitSeq(scope, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
