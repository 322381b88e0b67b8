package app

import (
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/generic"
	"github.com/kici-go/kici/internal/source/local"
)

// sourceFactories are the kinds of sources that this server knows: a new kind is one folder and one line here.
func sourceFactories(repos *git.Repos) map[string]ingress.Factory {
	return map[string]ingress.Factory{
		local.Kind:   func(c source.Config) (source.Source, error) { return orNil(local.New(c, repos)) },
		generic.Kind: func(c source.Config) (source.Source, error) { return orNil(generic.New(c)) },
	}
}

// orNil keeps a failed constructor's nil pointer from becoming a non-nil interface.
func orNil[S source.Source](s S, err error) (source.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
