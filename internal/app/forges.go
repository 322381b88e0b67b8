package app

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
	"github.com/kici-go/kici/internal/source/gitea"
	"github.com/kici-go/kici/internal/source/github"
	"github.com/kici-go/kici/internal/source/gitlab"
)

// mirrorsFolder is the folder of the data directory with the mirrors of forges' repositories.
const mirrorsFolder = "git"

// openForges adds the kinds of sources whose repositories live on a forge: a new one is a dialect and one line here.
func (s *Server) openForges(repos *git.Repos, into map[string]ingress.Factory) {
	s.mirrors = git.NewMirrors(git.MirrorOptions{Dir: s.data.File(mirrorsFolder), Repos: repos, Now: s.o.Now, Log: s.log, MaxBytes: s.tuning.MirrorMax})
	client := forge.NewHTTP(forge.HTTPOptions{Now: s.o.Now})
	s.opened("forges", func() error { client.Close(); return nil })
	deps := forge.Deps{HTTP: client, WebhookURL: func(c source.Config) string {
		return s.URL() + source.WebhookPath(c.Kind, c.OrgID, c.Name)
	}}
	for _, dialect := range []forge.Dialect{github.Dialect{}, gitea.Dialect{}, gitlab.Dialect{}} {
		into[dialect.Kind()] = func(c source.Config) (source.Source, error) {
			return forge.Open(c, dialect, forge.GitMirror{Mirror: s.mirrors.Open(c.ID)}, deps)
		}
	}
}

// sweepEvery is how often mirrors that nobody uses are looked for.
const sweepEvery = time.Hour

func (s *Server) sweepMirrors(ctx context.Context) error {
	return service.Loop{Name: "mirrors", Interval: sweepEvery, Backoff: time.Hour, Wake: s.mirrorsDue, Log: s.log, Tick: s.tidyMirrors}.Run(ctx)
}

// tidyMirrors removes the mirrors of sources that are gone, and lets the others look after themselves.
func (s *Server) tidyMirrors(ctx context.Context) error {
	ids, err := s.mirrors.IDs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		_, err := s.store.Read().SourceByID(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			err = s.mirrors.Remove(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	err = s.mirrors.Sweep(ctx)
	if s.dataDiskFull() {
		err = errors.Join(err, s.mirrors.MakeRoom(ctx, s.dataDiskFull))
	}
	return err
}
