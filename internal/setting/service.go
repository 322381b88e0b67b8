package setting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// How old what is in memory may be when no notification came, and for how long the last values of switches count when the
// table cannot be read (CLU-28): a moment without the database must not change what runs, an hour without it must not let
// anything through.
const (
	cacheTTL   = 10 * time.Second
	switchLife = time.Minute
)

// Deps is what the service needs. Getenv may be nil: no environment.
type Deps struct {
	Store  *store.Store
	Env    service.Env
	Log    *slog.Logger
	Getenv func(string) string
	// Base changes the defaults of a server that was built with other ones; it may be nil.
	Base func(*Cluster, *Org)
}

// Service gives and changes settings. It is safe for concurrent use.
type Service struct {
	st      *store.Store
	env     service.Env
	log     *slog.Logger
	cluster scopeOf[Cluster]
	org     scopeOf[Org]
	state   atomic.Pointer[state]
	loading chan struct{} // one slot; held across one read of the table, never by readers of settings
}

// state is what was read last. It is never changed, only replaced.
type state struct {
	cluster  view[Cluster]
	orgs     map[string]view[Org] // by scope; who has no row has the base
	readAt   time.Time            // of the last successful read; zero is never
	readable bool
}

// view is the effective values of a scope at one version.
type view[T any] struct {
	version int64
	data    string
	values  T
	broken  bool // its row cannot be read
}

// New checks the environment and returns the service with the values that hold without a table; Load or Run reads it.
func New(d Deps) (*Service, error) {
	s := &Service{st: d.Store, env: d.Env, log: d.Log.With("component", "settings"), loading: make(chan struct{}, 1)}
	s.cluster = scopeOf[Cluster]{keys: clusterKeys, rules: clusterRules, fromEnv: map[string]bool{}}
	s.org = scopeOf[Org]{keys: orgKeys, fromEnv: map[string]bool{}}
	s.cluster.setDefaults()
	s.org.setDefaults()
	if d.Base != nil {
		d.Base(&s.cluster.normal, &s.org.normal)
	}
	if err := errors.Join(s.cluster.overlay(d.Getenv), s.org.overlay(d.Getenv)); err != nil {
		return nil, err
	}
	s.state.Store(&state{cluster: view[Cluster]{values: s.cluster.safest(s.cluster.base)}})
	return s, nil
}

// Cluster returns the settings of the cluster as they hold now.
func (s *Service) Cluster() Cluster {
	st := s.state.Load()
	if s.denies(st, st.cluster.broken) {
		return s.cluster.safest(st.cluster.values)
	}
	return st.cluster.values
}

// Org returns the settings of an organisation as they hold now; one that has set nothing has the defaults.
func (s *Service) Org(orgID string) Org {
	st := s.state.Load()
	v, set := st.orgs[OrgScope(orgID)]
	if !set {
		v.values = s.org.base
	}
	if s.denies(st, v.broken) {
		return s.org.safest(v.values)
	}
	return v.values
}

// denies tells whether switches must be off because nobody knows what they say.
func (s *Service) denies(st *state, broken bool) bool {
	return broken || (!st.readable && (st.readAt.IsZero() || s.env.Now().Sub(st.readAt) > switchLife))
}

// Version is the version of the cluster's settings that holds here (CLU-27).
func (s *Service) Version() int64 { return s.state.Load().cluster.version }

// Run reads the table when somebody has changed it, and at least every ten seconds, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	sub := s.st.Subscribe(store.TopicSettings, "")
	defer sub.Close()
	wake := service.NewWake()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-sub.C():
				wake.Signal()
			}
		}
	}()
	return service.Loop{Name: "settings", Interval: cacheTTL, Wake: wake, Log: s.log, Tick: s.Load}.Run(ctx)
}

// Load reads the table now. When that fails the last values stay, and switches deny after a minute.
func (s *Service) Load(ctx context.Context) error {
	s.loading <- struct{}{} // what was read later is kept later; not a mutex, because in a simulation no time passes for who waits for one
	defer func() { <-s.loading }()
	rows, err := s.st.Read().SettingRows(ctx)
	old := s.state.Load()
	if err != nil {
		next := *old
		next.readable = false
		s.state.Store(&next)
		return fmt.Errorf("read settings: %w", err)
	}
	next := &state{cluster: view[Cluster]{values: s.cluster.base}, orgs: make(map[string]view[Org], len(rows)), readAt: s.env.Now(), readable: true}
	for _, row := range rows {
		if row.Scope == ClusterScope {
			next.cluster = read(s, s.cluster, row.Version, row.Data, old.cluster)
		} else {
			next.orgs[row.Scope] = read(s, s.org, row.Version, row.Data, old.orgs[row.Scope])
		}
	}
	s.state.Store(next)
	return nil
}

// read decodes one row, unless it is as before.
func read[T any](s *Service, scope scopeOf[T], version int64, data string, old view[T]) view[T] {
	if old.data == data && old.version == version && data != "" {
		return old
	}
	v := view[T]{version: version, data: data, values: scope.base}
	set, err := decode(data)
	if err != nil {
		s.log.Error("settings cannot be read; defaults hold, and what guards something is off", "err", err)
		v.broken = true
		return v
	}
	for _, problem := range scope.apply(&v.values, set) {
		s.log.Error("a stored setting is not valid and does not count", "problem", problem)
	}
	return v
}

func decode(data string) (map[string]json.RawMessage, error) {
	set := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(data), &set); err != nil {
		return nil, err
	}
	if set == nil {
		return nil, errors.New("it is null")
	}
	return set, nil
}

// scopeOf is the keys of one kind of scope with the values that hold when nothing is set.
type scopeOf[T any] struct {
	keys    []*keyOf[T]
	rules   []rule[T]
	normal  T // defaults
	base    T // … with the environment over them
	fromEnv map[string]bool
}

func (s *scopeOf[T]) setDefaults() {
	for _, k := range s.keys {
		k.first(&s.normal)
	}
}

// overlay makes the base from the defaults and the environment; all mistakes are reported at once.
func (s *scopeOf[T]) overlay(getenv func(string) string) error {
	s.base = s.normal
	if getenv == nil {
		return nil
	}
	var errs []error
	for _, k := range s.keys {
		text := getenv(k.Variable())
		if text == "" {
			continue
		}
		if err := k.set(&s.base, k.fromVariable(text)); err != nil {
			errs = append(errs, fmt.Errorf("%s %w, got %q", k.Variable(), err, clip(text)))
			continue
		}
		s.fromEnv[k.Name] = true
	}
	for _, r := range s.rules {
		if len(errs) == 0 && !r.holds(&s.base) && slices.ContainsFunc(r.keys, func(n string) bool { return s.fromEnv[n] }) {
			errs = append(errs, fmt.Errorf("the environment's settings disagree: %s", r.says))
		}
	}
	return errors.Join(errs...)
}

// apply puts stored values over t. A key that this version does not know is left to the version that wrote it.
func (s *scopeOf[T]) apply(t *T, set map[string]json.RawMessage) (problems []string) {
	for _, k := range s.keys {
		text, there := set[k.Name]
		if !there {
			continue
		}
		if err := k.set(t, text); err != nil {
			problems = append(problems, k.Name+" "+err.Error())
			if k.safe != nil {
				k.safe(t)
			}
		}
	}
	return problems
}

// safest is t with every switch as it is when nobody knows what it says.
func (s *scopeOf[T]) safest(t T) T {
	for _, k := range s.keys {
		if k.safe != nil {
			k.safe(&t)
		}
	}
	return t
}

func (s *scopeOf[T]) names() []string {
	out := make([]string, len(s.keys))
	for i, k := range s.keys {
		out[i] = k.Name
	}
	return out
}

// ClusterKeys and OrgKeys describe all settings, in the order in which they are shown.
func ClusterKeys() []Key { return describe(clusterKeys) }

// OrgKeys describes the settings of an organisation.
func OrgKeys() []Key { return describe(orgKeys) }

func describe[T any](keys []*keyOf[T]) []Key {
	out := make([]Key, len(keys))
	for i, k := range keys {
		out[i] = k.Key
	}
	return out
}

// Variables names the environment variables of all settings.
func Variables() []string {
	all := map[string]bool{}
	for _, k := range slices.Concat(ClusterKeys(), OrgKeys()) {
		all[k.Variable()] = true
	}
	return slices.Sorted(maps.Keys(all))
}
