package ingress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// catalogTTL bounds how long a change can go unseen when its notification was lost. Absence is never remembered (ING-3).
const catalogTTL = 30 * time.Second

// Catalog holds the sources: rows in the store, and a copy in memory that a notification empties.
type Catalog struct {
	d   Deps
	log *slog.Logger
	sub *store.Subscription

	mu    sync.Mutex
	gen   int // raised when the copy is emptied
	byKey map[string]*entry
}

// entry is one source, open. Its adapter is nil when the options or secrets cannot be used; err says why.
type entry struct {
	row     db.Source
	source  source.Source
	err     error
	expires time.Time
}

// usable returns the adapter of an enabled source.
func (e *entry) usable() (source.Source, error) {
	switch {
	case e.row.DeletedAt.Valid:
		return nil, fmt.Errorf("%w: source %s was deleted", ErrNotFound, e.row.Name)
	case !e.row.Enabled:
		return nil, fmt.Errorf("source %s: %w", e.row.Name, ErrDisabled)
	}
	return e.source, e.err
}

func newCatalog(d Deps, log *slog.Logger) *Catalog {
	return &Catalog{d: d, log: log, sub: d.Store.Subscribe(store.TopicSources, ""), byKey: map[string]*entry{}}
}

// close ends the subscription to changes.
func (c *Catalog) close() { c.sub.Close() }

// byName finds an undeleted source. ErrNotFound for none; other errors are the store's and must not be read as absence (ING-6).
func (c *Catalog) byName(ctx context.Context, orgID, name string) (*entry, error) {
	return c.find(ctx, "name\x00"+orgID+"\x00"+name, func() (db.Source, error) {
		return c.d.Store.Read().SourceByName(ctx, orgID, name)
	})
}

// byNameOrID is byName for addresses that may bear the id instead (ING-7).
func (c *Catalog) byNameOrID(ctx context.Context, orgID, ref string) (*entry, error) {
	e, err := c.byName(ctx, orgID, ref)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	e, err = c.find(ctx, "id\x00"+ref, func() (db.Source, error) { return c.d.Store.Read().SourceByID(ctx, ref) })
	if err == nil && e.row.OrgID != orgID {
		return nil, ErrNotFound
	}
	return e, err
}

// byRoutingKey finds a source, deleted ones too.
func (c *Catalog) byRoutingKey(ctx context.Context, orgID, key string) (*entry, error) {
	e, err := c.find(ctx, key, func() (db.Source, error) { return c.d.Store.Read().SourceByRoutingKey(ctx, key) })
	if err == nil && e.row.OrgID != orgID {
		return nil, ErrNotFound
	}
	return e, err
}

func (c *Catalog) find(ctx context.Context, key string, read func() (db.Source, error)) (*entry, error) {
	now := c.d.Env.Now()
	c.mu.Lock()
	select {
	case <-c.sub.C():
		c.gen++
		clear(c.byKey)
	default:
	}
	e, gen := c.byKey[key], c.gen
	c.mu.Unlock()
	if e != nil && now.Before(e.expires) {
		return e, nil
	}
	row, err := read()
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	} else if err != nil {
		return nil, fmt.Errorf("look up source: %w", err)
	}
	e, err = c.open(ctx, row)
	if err != nil {
		return nil, err
	}
	e.expires = now.Add(catalogTTL)
	c.mu.Lock()
	if c.gen == gen { // else it was read before a change
		c.byKey[key] = e
	}
	c.mu.Unlock()
	return e, nil
}

// open makes the adapter. Its error is the store's; what is wrong with the source itself stays in the entry.
func (c *Catalog) open(ctx context.Context, row db.Source) (*entry, error) {
	e := &entry{row: row}
	factory, ok := c.d.Factories[row.Kind]
	if !ok {
		e.err = fmt.Errorf("%w: this server knows no sources of kind %q", source.ErrMisconfigured, row.Kind)
		return e, nil
	}
	cfg := configOf(row)
	if !row.DeletedAt.Valid {
		var err error
		if cfg.Secrets, err = c.secrets(ctx, row); err != nil {
			return nil, fmt.Errorf("open the secrets of source %s: %w", row.Name, err)
		}
	}
	src, err := factory(cfg)
	if err != nil {
		e.err = fmt.Errorf("%w: %w", source.ErrMisconfigured, err)
		return e, nil
	}
	e.source = src
	return e, nil
}

func configOf(row db.Source) source.Config {
	return source.Config{
		ID: row.ID, OrgID: row.OrgID, Kind: row.Kind, Name: row.Name, RoutingKey: row.RoutingKey, Repo: row.Repo,
		Options: []byte(row.Config),
	}
}

// OldSecretFor is how long the webhook secret before a rotation is still accepted.
const OldSecretFor = 7 * 24 * time.Hour

// secrets opens what a source has, without a former webhook secret that has ended.
func (c *Catalog) secrets(ctx context.Context, row db.Source) (map[string]string, error) {
	all, err := c.d.Secrets.Open(ctx, row.OrgID, SecretScope(row.ID))
	out := make(map[string]string, len(all))
	for key, s := range all {
		if key != source.SecretWebhookOld || c.d.Env.NowMs() < s.UpdatedAt+OldSecretFor.Milliseconds() {
			out[key] = s.Value
		}
	}
	return out, err
}

// SecretScope is the scope of a source's secrets.
func SecretScope(sourceID string) string { return "__source__/" + sourceID }

func secretOf(row db.Source, key string) SecretID {
	return SecretID{OrgID: row.OrgID, Scope: SecretScope(row.ID), Key: key}
}

// CloneFor says how an agent gets the repository behind a routing key.
func (c *Catalog) CloneFor(ctx context.Context, orgID, routingKey string) (source.Clone, error) {
	src, err := c.sourceFor(ctx, orgID, routingKey)
	if err != nil {
		return source.Clone{}, err
	}
	return src.Clone(ctx)
}

// sourceFor returns the adapter behind a routing key, even of a disabled source: its runs go on.
func (c *Catalog) sourceFor(ctx context.Context, orgID, routingKey string) (source.Source, error) {
	e, err := c.byRoutingKey(ctx, orgID, routingKey)
	if err != nil {
		return nil, err
	}
	return e.source, e.err
}
