package forge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/source"
)

// Deps are what a source needs from its server.
type Deps struct {
	HTTP       *HTTP
	WebhookURL func(source.Config) string // where the forge sends deliveries of this source
}

// Source is one repository on a forge. It implements all that the contract knows but source.Redeliverer; see Open.
type Source struct {
	cfg     source.Config
	opts    Options
	dialect Dialect
	mirror  Mirror
	api     *API
	d       Deps
}

// redelivering is a Source whose forge can repeat deliveries.
type redelivering struct {
	*Source
	log Redelivers
}

// Open makes a source whose type tells the truth: it is a source.Redeliverer only where the forge keeps a log of deliveries.
func Open(cfg source.Config, dialect Dialect, mirror Mirror, d Deps) (source.Source, error) {
	s, err := New(cfg, dialect, mirror, d)
	if err != nil {
		return nil, err
	}
	if log, ok := dialect.(Redelivers); ok {
		return redelivering{s, log}, nil
	}
	return s, nil
}

// New checks the options and says everything that is wrong with them. It reaches nothing (D23).
func New(cfg source.Config, dialect Dialect, mirror Mirror, d Deps) (*Source, error) {
	var o Options
	if err := source.DecodeOptions(cfg, &o); err != nil {
		return nil, err
	}
	o = o.withDefaults(dialect)
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := APIConfig{Base: o.APIURL, Token: cfg.Secrets[source.SecretToken], AllowPrivate: o.AllowPrivate}
	if h, ok := dialect.(interface{ Header() map[string]string }); ok {
		c.Header = h.Header()
	}
	api, err := d.HTTP.API(c)
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, opts: o, dialect: dialect, mirror: mirror, api: api, d: d}, nil
}

// HasRepo is true.
func (s *Source) HasRepo() bool { return true }

// Repository is the only one whose workflows this source may start.
func (s *Source) Repository() string { return s.repo() }

// repo is the identifier in runs (DOM-3).
func (s *Source) repo() string {
	if s.cfg.Repo != "" {
		return s.cfg.Repo
	}
	return s.opts.Repository
}

// Clone says how git gets the repository. Without a token or key it does so as nobody.
func (s *Source) Clone(context.Context) (source.Clone, error) {
	c := s.clone()
	if c.SSHKey != "" && c.KnownHosts == "" {
		c.KnownHosts = s.mirror.KnownHosts()
	}
	return c, nil
}

func (s *Source) clone() source.Clone {
	c := source.Clone{URL: s.opts.CloneURL}
	if s.opts.Clone == CloneSSH {
		c.SSHKey, c.KnownHosts = s.cfg.Secrets[source.SecretSSHKey], s.opts.KnownHosts
	} else if token := s.cfg.Secrets[source.SecretToken]; token != "" {
		c.Username, c.Password = s.dialect.CloneUser(), token
	}
	return c
}

// Resolve implements source.Source.
func (s *Source) Resolve(ctx context.Context, ref string) (source.Commit, error) {
	return s.mirror.Resolve(ctx, s.clone(), ref)
}

// Files implements source.Source.
func (s *Source) Files(ctx context.Context, sha string) ([]source.File, error) {
	return s.mirror.Files(ctx, s.clone(), sha)
}

// ChangedFiles implements source.Source.
func (s *Source) ChangedFiles(ctx context.Context, before, after string) ([]string, error) {
	return s.mirror.ChangedFiles(ctx, s.clone(), before, after)
}

// IsAncestor implements source.Ancestor.
func (s *Source) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	return s.mirror.IsAncestor(ctx, s.clone(), a, b)
}

// Heads implements source.HeadLister.
func (s *Source) Heads(ctx context.Context) (map[string]string, error) {
	return s.mirror.Heads(ctx, s.clone())
}

// DefaultBranch is the configured one, else the forge's. Git is asked when there is no token, or the API cannot answer now.
func (s *Source) DefaultBranch(ctx context.Context) (string, error) {
	if s.opts.DefaultBranch != "" {
		return s.opts.DefaultBranch, nil
	}
	if s.api.c.Token != "" {
		branch, err := s.askDefault(ctx)
		if err == nil && branch != "" || errors.Is(err, source.ErrDenied) || ctx.Err() != nil {
			return branch, err
		}
	}
	return s.mirror.DefaultBranch(ctx, s.clone())
}

func (s *Source) askDefault(ctx context.Context) (string, error) {
	branch, err := s.dialect.DefaultBranch(ctx, s.api, s.opts.Repository)
	if errors.Is(err, source.ErrNotFound) {
		// Not "no default branch", as it would mean to callers: forges hide what a token may not see.
		return "", fmt.Errorf("%w: %v", source.ErrDenied, err) //nolint:errorlint // must not be ErrNotFound
	}
	return branch, err
}

// Check verifies that the token works, if there is one, and that git reaches the repository.
func (s *Source) Check(ctx context.Context) error {
	var errs []error
	if s.api.c.Token != "" {
		if _, err := s.askDefault(ctx); err != nil {
			errs = append(errs, fmt.Errorf("API: %w", err))
		}
	}
	if _, err := s.Heads(ctx); err != nil {
		errs = append(errs, fmt.Errorf("clone: %w", err))
	}
	return errors.Join(errs...)
}

// ReportStatus implements source.Reporter.
func (s *Source) ReportStatus(ctx context.Context, st source.CommitStatus) error {
	if err := s.needToken("report a commit status"); err != nil {
		return err
	}
	st.Context = source.Bound(st.Context, source.MaxStatusContext)
	return s.dialect.ReportStatus(ctx, s.api, s.opts.Repository, st)
}

// InstallHook implements source.HookInstaller. The hook gets the current secret.
func (s *Source) InstallHook(ctx context.Context, address string) error {
	if err := s.needToken("create a webhook"); err != nil {
		return err
	}
	return s.dialect.InstallHook(ctx, s.api, s.opts.Repository, address, s.cfg.Secrets[source.SecretWebhook])
}

func (s *Source) needToken(what string) error {
	if s.api.c.Token == "" {
		return fmt.Errorf("%w: source %s has no token, which it needs to %s", source.ErrDenied, s.cfg.Name, what)
	}
	return nil
}

// Missed implements source.Redeliverer.
func (r redelivering) Missed(ctx context.Context, since time.Time, limit int) ([]source.MissedDelivery, error) {
	if err := r.needToken("list missed deliveries"); err != nil {
		return nil, err
	}
	return r.log.Missed(ctx, r.api, r.opts.Repository, r.d.WebhookURL(r.cfg), since, limit)
}

// Redeliver implements source.Redeliverer.
func (r redelivering) Redeliver(ctx context.Context, id string) error {
	if err := r.needToken("repeat a delivery"); err != nil {
		return err
	}
	return r.log.Redeliver(ctx, r.api, r.opts.Repository, id)
}

var (
	_ source.Source        = (*Source)(nil)
	_ source.Receiver      = (*Source)(nil)
	_ source.Ancestor      = (*Source)(nil)
	_ source.Limited       = (*Source)(nil)
	_ source.Reporter      = (*Source)(nil)
	_ source.HookInstaller = (*Source)(nil)
	_ source.HeadLister    = (*Source)(nil)
	_ source.Redeliverer   = redelivering{}
)
