package setting

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// Invalid says what is wrong with a change, one sentence a mistake. Nothing was changed.
type Invalid struct{ Problems []string }

// Error implements error.
func (i *Invalid) Error() string { return strings.Join(i.Problems, "; ") }

// Change sets keys of a scope; null makes a key's value the default again. Keys that are not named stay as they are.
type Change struct {
	Scope string // ClusterScope or OrgScope
	By    string // who, for people
	Set   map[string]json.RawMessage
}

// Changed is what a change did. Nothing named is nothing changed; then the version did not rise.
type Changed struct {
	Version int64
	Keys    []ChangedKey
}

// ChangedKey is one stored value before and after, null for none.
type ChangedKey struct {
	Name     string
	Old, New json.RawMessage
}

// Apply makes a change. Two at once take turns at the row, so that neither loses what the other set (XC-111). Errors of the
// caller are *Invalid.
func (s *Service) Apply(ctx context.Context, c Change) (Changed, error) {
	var out Changed
	err := s.st.Write(ctx, func(tx *store.Tx) (err error) {
		out, err = s.applyTx(ctx, tx, c)
		return err
	})
	if err != nil {
		return Changed{}, err
	}
	if len(out.Keys) > 0 {
		if err := s.Load(ctx); err != nil {
			s.log.Warn("read what was just set", "err", err) // the loop does
		}
	}
	return out, nil
}

func (s *Service) applyTx(ctx context.Context, tx *store.Tx, c Change) (Changed, error) {
	if err := tx.SeedSettings(ctx, c.Scope, tx.Now()); err != nil {
		return Changed{}, err
	}
	row, err := tx.SettingsForUpdate(ctx, c.Scope)
	if err != nil {
		return Changed{}, err
	}
	stored, err := decode(row.Data)
	if err != nil { // somebody broke the row; what is set now is all that is set
		stored = map[string]json.RawMessage{}
	}
	next, problems := s.merge(c, stored)
	if len(problems) > 0 {
		return Changed{}, &Invalid{Problems: problems}
	}
	out := Changed{Version: row.Version, Keys: differences(c.Set, stored, next)}
	if len(out.Keys) == 0 && err == nil {
		return out, nil
	}
	out.Version++
	data, err := json.Marshal(next)
	if err != nil {
		return Changed{}, err
	}
	tx.Notify(store.TopicSettings, c.Scope)
	return out, tx.UpdateSettings(ctx, db.UpdateSettingsParams{
		Scope: c.Scope, Version: out.Version, Data: string(data), Now: tx.Now(), UpdatedBy: c.By,
	})
}

func (s *Service) merge(c Change, stored map[string]json.RawMessage) (map[string]json.RawMessage, []string) {
	if c.Scope == ClusterScope {
		return s.cluster.merge(c.Set, stored)
	}
	return s.org.merge(c.Set, stored)
}

// merge returns the stored values after a change, in the form in which a value is kept, or what is wrong with it. Rules
// between keys are checked against the values that would hold, whoever set them.
func (s *scopeOf[T]) merge(set, stored map[string]json.RawMessage) (next map[string]json.RawMessage, problems []string) {
	next = make(map[string]json.RawMessage, len(stored)+len(set))
	maps.Copy(next, stored)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		k := s.key(name)
		if k == nil {
			problems = append(problems, strings.TrimSuffix(fmt.Sprintf("%q is not a setting; %s", clip(name), suggest.Cure(name, s.names())), "; "))
			continue
		}
		text := set[name]
		if isNull(text) {
			delete(next, name)
			continue
		}
		var t T
		if err := k.set(&t, text); err != nil {
			problems = append(problems, name+" "+err.Error())
			continue
		}
		kept, err := json.Marshal(k.get(&t))
		if err != nil {
			problems = append(problems, name+": "+err.Error())
			continue
		}
		next[name] = kept
	}
	if len(problems) > 0 {
		return nil, problems
	}
	effective := s.base
	s.apply(&effective, next)
	for _, r := range s.rules {
		touched := slices.ContainsFunc(r.keys, func(n string) bool { _, is := set[n]; return is })
		if touched && !r.holds(&effective) {
			problems = append(problems, r.says+s.valuesOf(r.keys, &effective))
		}
	}
	return next, problems
}

// valuesOf says what some keys would be.
func (s *scopeOf[T]) valuesOf(names []string, t *T) string {
	parts := make([]string, 0, len(names))
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%s would be %v", n, s.key(n).get(t)))
	}
	return ": " + strings.Join(parts, ", ")
}

func (s *scopeOf[T]) key(name string) *keyOf[T] {
	for _, k := range s.keys {
		if k.Name == name {
			return k
		}
	}
	return nil
}

func isNull(text json.RawMessage) bool {
	t := bytes.TrimSpace(text)
	return len(t) == 0 || bytes.Equal(t, []byte("null"))
}

var null = json.RawMessage("null")

func differences(set, before, after map[string]json.RawMessage) []ChangedKey {
	var out []ChangedKey
	for _, name := range slices.Sorted(maps.Keys(set)) {
		was, now := or(before[name], null), or(after[name], null)
		if !bytes.Equal(was, now) {
			out = append(out, ChangedKey{Name: name, Old: was, New: now})
		}
	}
	return out
}

func or(v, otherwise json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return otherwise
	}
	return v
}
