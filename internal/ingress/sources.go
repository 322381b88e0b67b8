package ingress

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Kinds of sources that can be added here.
const (
	KindLocal   = "local"
	KindGeneric = "generic"
)

// Added is a new source. Secret is what its senders sign with; it is shown this once.
type Added struct {
	Source   db.Source
	Secret   string   // "" when the source verifies without one, or the caller brought it
	URL      string   // webhook address
	Warnings []string // what keeps it from working, as far as can be told without the forge
}

// LocalSource describes a repository on the server's machine.
type LocalSource struct {
	OrgID, Name   string
	Path          string // absolute
	Repo          string // identifier in runs; "" is the directory's name
	DefaultBranch string // "" asks the repository
	Secret        string // "" makes one
}

// AddLocal stores a local source. The repository need not be there yet (D23).
func (c *Catalog) AddLocal(ctx context.Context, l LocalSource) (Added, error) {
	fields := map[string]string{}
	if l.Path != "" {
		fields["path"] = filepath.Clean(l.Path)
	}
	if l.DefaultBranch != "" {
		fields["defaultBranch"] = l.DefaultBranch
	}
	options, err := json.Marshal(fields)
	if err != nil {
		return Added{}, err
	}
	if l.Repo == "" {
		l.Repo = strings.TrimSuffix(filepath.Base(filepath.Clean(l.Path)), ".git")
	}
	row := db.Source{OrgID: l.OrgID, Kind: KindLocal, Name: l.Name, Repo: l.Repo, Config: string(options)}
	return c.add(ctx, row, map[string]string{source.SecretWebhook: l.Secret})
}

// GenericSource describes a webhook for any sender. Options are generic.Options as JSON.
type GenericSource struct {
	OrgID, Name string
	Options     json.RawMessage
	RunsSource  string // the source whose registered workflows it may start; "" is any
	Secret      string // "" makes one where the method needs it
}

// AddGeneric stores a generic source.
func (c *Catalog) AddGeneric(ctx context.Context, g GenericSource) (Added, error) {
	options := map[string]any{}
	if len(g.Options) > 0 {
		if err := json.Unmarshal(g.Options, &options); err != nil {
			return Added{}, invalid("options: %v", err)
		}
	}
	if g.RunsSource != "" {
		e, err := c.byName(ctx, g.OrgID, g.RunsSource)
		if errors.Is(err, ErrNotFound) || err == nil && e.row.Repo == "" {
			return Added{}, invalid("%q is not a source with a repository", g.RunsSource)
		} else if err != nil {
			return Added{}, err
		}
		options["repository"] = e.row.Repo
	}
	text, err := json.Marshal(options)
	if err != nil {
		return Added{}, err
	}
	row := db.Source{OrgID: g.OrgID, Kind: KindGeneric, Name: g.Name, Config: string(text)}
	return c.add(ctx, row, map[string]string{source.SecretWebhook: g.Secret})
}

var (
	sourceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`) })
	repoName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`) })
)

// Bounds of the secrets of a source, in bytes.
const (
	minSecret = 16
	maxToken  = 4 << 10
	maxSSHKey = 32 << 10
)

// add stores a source with the secrets that were given; those that are "" are not stored.
func (c *Catalog) add(ctx context.Context, row db.Source, secrets map[string]string) (Added, error) {
	row.ID = c.d.Env.NewID()
	row.RoutingKey = "generic:" + row.OrgID + ":" + row.ID
	if row.Kind == source.KindGitHub {
		row.RoutingKey = "github:" + row.ID
	}
	row.Enabled = true
	intake, err := c.validate(row, secrets)
	if err != nil {
		return Added{}, invalidAll("the source cannot be added", err)
	}
	made := ""
	if secrets[source.SecretWebhook] == "" && intake.Secret {
		made = ci.RandomHex(32)
		secrets[source.SecretWebhook] = made
	}
	err = c.d.Store.Write(ctx, func(tx *store.Tx) error { return c.insert(ctx, tx, &row, secrets) })
	if err != nil {
		return Added{}, err
	}
	return Added{Source: row, Secret: made, URL: c.WebhookURL(row.Kind, row.OrgID, row.Name), Warnings: c.warnings(row, secrets)}, nil
}

func (c *Catalog) insert(ctx context.Context, tx *store.Tx, row *db.Source, secrets map[string]string) error {
	row.CreatedAt, row.UpdatedAt = tx.Now(), tx.Now()
	if err := onlyOne(ctx, tx, *row); err != nil {
		return err
	}
	n, err := tx.InsertSource(ctx, db.InsertSourceParams{
		ID: row.ID, OrgID: row.OrgID, Kind: row.Kind, Name: row.Name, RoutingKey: row.RoutingKey, Repo: row.Repo,
		Config: row.Config, Enabled: row.Enabled, CreatedAt: row.CreatedAt,
	})
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrExists
	}
	if source.OnForge(row.Kind) {
		if _, err := tx.AddSourcePolls(ctx, tx.Now()); err != nil {
			return err
		}
	}
	tx.Notify(store.TopicSources, row.OrgID)
	for key, value := range secrets {
		if value == "" {
			continue
		}
		if err := c.d.Secrets.Put(ctx, tx, secretOf(*row, key), value); err != nil {
			return err
		}
	}
	return nil
}

// validate says everything that is wrong with a source that is to be stored with these secrets.
func (c *Catalog) validate(row db.Source, secrets map[string]string) (source.Intake, error) {
	var errs []error
	if !sourceName().MatchString(row.Name) {
		errs = append(errs, fmt.Errorf("name %q must be 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit", row.Name))
	}
	if row.Repo != "" && !repoName().MatchString(row.Repo) {
		errs = append(errs, fmt.Errorf("repo %q must be letters, digits, '.', '_', '-' and '/'", row.Repo))
	}
	errs = append(errs, checkSecrets(row.Kind, secrets)...)
	var intake source.Intake
	factory, ok := c.d.Factories[row.Kind]
	if !ok {
		return intake, errors.Join(append(errs, fmt.Errorf("no sources of kind %q", row.Kind))...)
	}
	cfg := configOf(row)
	cfg.Secrets = secrets
	src, err := factory(cfg)
	if err != nil {
		return intake, errors.Join(append(errs, err)...)
	}
	if r, ok := src.(source.Receiver); ok {
		intake = r.Intake()
	}
	return intake, errors.Join(errs...)
}

// WebhookURL is the address that a source's senders post to.
func (c *Catalog) WebhookURL(kind, orgID, name string) string {
	return c.d.BaseURL() + source.WebhookPath(kind, orgID, name)
}

// List returns the organisation's sources by name.
func (c *Catalog) List(ctx context.Context, orgID string) ([]db.Source, error) {
	return c.d.Store.Read().SourceList(ctx, orgID)
}

// Get returns one source by name, id or routing key.
func (c *Catalog) Get(ctx context.Context, orgID, ref string) (db.Source, error) {
	row, err := c.d.Store.Read().SourceByRef(ctx, orgID, ref)
	return row, notFound(err)
}

// get is Get with the adapter.
func (c *Catalog) get(ctx context.Context, orgID, ref string) (*entry, error) {
	row, err := c.Get(ctx, orgID, ref)
	if err != nil {
		return nil, err
	}
	return c.byRoutingKey(ctx, orgID, row.RoutingKey)
}

// Enable turns a source on or off, from the next delivery on, on every node (ING-3). What was pushed while it was off is not
// missed.
func (c *Catalog) Enable(ctx context.Context, orgID, ref string, on bool) error {
	return c.change(ctx, orgID, ref, func(tx *store.Tx, row db.Source) (int64, error) {
		if on && !row.Enabled {
			if err := forgetHeads(ctx, tx, row.ID); err != nil {
				return 0, err
			}
		}
		return tx.SetSourceEnabled(ctx, on, tx.Now(), row.ID)
	})
}

// Delete removes a source, its secret and its registrations. Its runs and deliveries stay, and running jobs can still clone.
func (c *Catalog) Delete(ctx context.Context, orgID, ref string) error {
	return c.change(ctx, orgID, ref, func(tx *store.Tx, row db.Source) (int64, error) { return c.remove(ctx, tx, row) })
}

func (c *Catalog) remove(ctx context.Context, tx *store.Tx, row db.Source) (rows int64, err error) {
	if err := c.d.Registrations.Forget(ctx, tx, row.OrgID, row.RoutingKey); err != nil {
		return 0, err
	}
	if err := c.d.Secrets.DropScope(ctx, tx, row.OrgID, SecretScope(row.ID)); err != nil {
		return 0, err
	}
	return tx.DeleteSource(ctx, sql.NullInt64{Int64: tx.Now(), Valid: true}, row.ID)
}

// change runs one conditional write of a source and tells every node.
func (c *Catalog) change(ctx context.Context, orgID, ref string, write func(*store.Tx, db.Source) (rows int64, err error)) error {
	return c.d.Store.Write(ctx, func(tx *store.Tx) error {
		row, err := tx.SourceByRef(ctx, orgID, ref)
		if err != nil {
			return notFound(err)
		}
		n, err := write(tx, row)
		if err == nil && n == 0 {
			return ErrNotFound
		}
		tx.Notify(store.TopicSources, orgID)
		return err
	})
}

// Update replaces the options of a source. The row must not have changed since it was read. A source on a forge takes its
// repository from the options; with another one, what the former had registered is forgotten.
func (c *Catalog) Update(ctx context.Context, read db.Source, repo string, options json.RawMessage) error {
	next := read
	next.Repo, next.Config = repo, string(options)
	if source.OnForge(read.Kind) {
		next.Repo = placeOf(next.Kind, next.Config).repo
	}
	secrets, err := c.secrets(ctx, read)
	if err != nil {
		return err
	}
	if _, err := c.validate(next, secrets); err != nil {
		return invalidAll("the source cannot be changed so", err)
	}
	return c.change(ctx, read.OrgID, read.ID, func(tx *store.Tx, _ db.Source) (int64, error) {
		if err := c.moved(ctx, tx, read, next); err != nil {
			return 0, err
		}
		n, err := tx.SetSourceConfig(ctx, db.SetSourceConfigParams{
			Config: next.Config, Repo: next.Repo, Now: max(tx.Now(), read.UpdatedAt+1), ID: read.ID, ReadAt: read.UpdatedAt,
		})
		if err == nil && n == 0 {
			return 0, ErrTryAgain
		}
		return n, err
	})
}

func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// Checked is what Check found.
type Checked struct {
	DefaultBranch string // "" for a source without a repository
	Commit        source.Commit
	Warnings      []string // what may keep deliveries or statuses away
}

// What one request of a person to a forge may take.
const (
	checkTimeout = 15 * time.Second
	hookTimeout  = 30 * time.Second
)

// Check reaches the source now. Its error is a sentence for people.
func (c *Catalog) Check(ctx context.Context, orgID, ref string) (Checked, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	e, err := c.get(ctx, orgID, ref)
	if err != nil {
		return Checked{}, err
	}
	if e.err != nil {
		return Checked{}, e.err
	}
	secrets, err := c.secrets(ctx, e.row)
	if err != nil {
		return Checked{}, err
	}
	found := Checked{Warnings: c.warnings(e.row, secrets)}
	if err := e.source.Check(ctx); err != nil || !e.source.HasRepo() {
		return found, c.cured(e.row, err)
	}
	if found.DefaultBranch, err = e.source.DefaultBranch(ctx); err != nil {
		return found, c.cured(e.row, err)
	}
	found.Commit, err = e.source.Resolve(ctx, "refs/heads/"+found.DefaultBranch)
	if errors.Is(err, source.ErrNotFound) { // an empty repository
		return found, nil
	}
	return found, c.cured(e.row, err)
}
