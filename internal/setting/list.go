package setting

import (
	"context"
	"encoding/json"
	"fmt"
)

// Where a value comes from.
const (
	FromLive        = "live"
	FromEnvironment = "environment"
	FromDefault     = "default"
)

// Value is one setting as it holds.
type Value struct {
	Key
	Value   json.RawMessage
	Default json.RawMessage
	Source  string // FromLive, FromEnvironment or FromDefault
}

// Listing is all settings of a scope.
type Listing struct {
	Version   int64
	UpdatedAt int64 // 0 = never set
	UpdatedBy string
	Values    []Value
}

// List reads the settings of a scope from the store, so that it shows what was set last wherever that was done.
func (s *Service) List(ctx context.Context, scope string) (Listing, error) {
	rows, err := s.st.Read().SettingRows(ctx)
	if err != nil {
		return Listing{}, fmt.Errorf("read settings: %w", err)
	}
	l, data := Listing{}, "{}"
	for _, row := range rows {
		if row.Scope == scope {
			l.Version, l.UpdatedBy, data = row.Version, row.UpdatedBy, row.Data
			if row.Version > 0 {
				l.UpdatedAt = row.UpdatedAt
			}
		}
	}
	set, err := decode(data)
	if err != nil {
		return Listing{}, fmt.Errorf("the settings of %s are damaged: %w", scope, err)
	}
	if scope == ClusterScope {
		l.Values, err = values(s.cluster, set)
	} else {
		l.Values, err = values(s.org, set)
	}
	return l, err
}

func values[T any](s scopeOf[T], set map[string]json.RawMessage) ([]Value, error) {
	effective := s.base
	s.apply(&effective, set)
	out := make([]Value, 0, len(s.keys))
	for _, k := range s.keys {
		v := Value{Key: k.Key, Source: FromDefault}
		if s.fromEnv[k.Name] {
			v.Source = FromEnvironment
		}
		var t T
		if text, live := set[k.Name]; live && k.set(&t, text) == nil {
			v.Source = FromLive
		}
		var err error
		if v.Value, err = json.Marshal(k.get(&effective)); err != nil {
			return nil, err
		}
		if v.Default, err = json.Marshal(k.get(&s.normal)); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
