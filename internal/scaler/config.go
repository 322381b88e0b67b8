package scaler

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// Defaults of scalers.yaml.
const (
	DefaultGlobalMaxAgents     = 50
	DefaultMaxConcurrentSpawns = 8
	DefaultWarmIdleSeconds     = 300
)

// Config is a whole, valid scalers.yaml with its fragments.
type Config struct {
	File            string
	GlobalMaxAgents int64
	GlobalCap       ci.Resources
	Pools           map[string]ci.Resources // machine pools, with what they have
	Scalers         []Entry                 // in file order
}

// Entry is one scaler.
type Entry struct {
	Name, Type          string
	MaxAgents           int64
	MaxConcurrentSpawns int
	URL                 string // orchestratorUrl, '' = the server's own
	Mandatory           []string
	Platform            Platform
	Roles               []string // builder, init-runner
	Cap                 ci.Resources
	WarmPool            WarmPool
	MachinePool         string
	MinFreeDisk         int64 // bytes below which it starts nothing; 0 is Settings.MinFreeDisk
	LabelSets           []LabelSet
	Options             backend.Options

	field  field // where it stands
	reader reader
}

// Platform of a pool; zero fields are undeclared (SC-8).
type Platform struct{ OS, Arch string }

// WarmPool says how many agents of each label set are kept running in advance (WP).
type WarmPool struct {
	Enabled     bool
	Size        int64
	IdleSeconds int64
}

// LabelSet is one element of labelSets.
type LabelSet struct {
	Labels    []string // normalised
	Resources ci.Claim // over defaults.resources
	Env       map[string]string
	Network   netpolicy.Policy
	Options   backend.Options

	field field
}

// LoadOptions are what a file is read against.
type LoadOptions struct {
	Dir   string // folder of fragments (CF-1), '' = none
	Kinds []backend.Kind
}

// LoadConfig reads and checks scalers.yaml. It returns every problem at once; the Config is nil when one of them is no mere
// warning.
func LoadConfig(path string, o LoadOptions) (*Config, []Problem) {
	l := newLoader(o)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, []Problem{{File: path, Message: readError(err), Cure: "set KICI_SCALER_CONFIG_PATH to a readable file"}}
	}
	l.mainFile(path, data)
	if o.Dir != "" {
		l.fragments(o.Dir)
	}
	return l.finish(path)
}

// ParseConfig is LoadConfig for one file that is at hand.
func ParseConfig(file string, data []byte, o LoadOptions) (*Config, []Problem) {
	l := newLoader(o)
	l.mainFile(file, data)
	return l.finish(file)
}

func newLoader(o LoadOptions) *loader {
	return &loader{options: o, config: Config{GlobalMaxAgents: DefaultGlobalMaxAgents}}
}

func readError(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// loader reads one configuration.
type loader struct {
	options  LoadOptions
	config   Config
	defaults ci.Claim
	pools    []string
	problems []Problem
	main     field // of the main file, for "scalers is required"
	reader   reader
}

// Keys of the top level.
var topKeys = []string{"version", "globalMaxAgents", "defaults", "globalResourceCap", "machinePools", "scalers", "firecracker"}

func (l *loader) mainFile(file string, data []byte) {
	r := reader{file, &l.problems}
	l.reader, l.config.File = r, file
	root := r.parse(data)
	l.main = field{node: root}
	if root == nil {
		if len(l.problems) == 0 {
			r.fault(field{}, "", "the file is empty")
		}
		return
	}
	m := r.mapping(l.main, topKeys)
	switch v := m["version"]; {
	case !v.present():
		r.fault(field{root, "version"}, "add version: 1", "is required")
	case r.text(v) != "1":
		r.fault(v, "", "must be 1, got %q", r.text(v))
	}
	l.config.GlobalMaxAgents = r.integer(m["globalMaxAgents"], DefaultGlobalMaxAgents, 1)
	l.config.GlobalCap = r.cap(m["globalResourceCap"])
	l.defaults = r.resources(r.mapping(m["defaults"], []string{"resources"})["resources"])
	l.machinePools(r, m["machinePools"])
	if f := m["firecracker"]; f.present() {
		r.warn(f, "", "the firecracker backend is not built yet; these settings do nothing")
	}
	l.entries(r, m["scalers"])
}

var fragmentTypes = []string{".yaml", ".yml"}

// fragments appends the scalers arrays of a folder's files, by name (CF-2).
func (l *loader) fragments(dir string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		l.problems = append(l.problems, Problem{File: dir, Message: readError(err), Cure: "set KICI_SCALER_CONFIG_DIR to a readable folder"})
		return
	}
	for _, f := range files {
		if f.IsDir() || !slices.Contains(fragmentTypes, filepath.Ext(f.Name())) {
			continue
		}
		path := filepath.Join(dir, f.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			l.problems = append(l.problems, Problem{File: path, Message: readError(err)})
			continue
		}
		r := reader{path, &l.problems}
		m := r.mapping(field{node: r.parse(data)}, nil)
		for key, v := range m {
			if key != "scalers" {
				r.warn(v, "move it to the main file", "a fragment gives scalers only; %s is ignored", key)
			}
		}
		l.entries(r, m["scalers"])
	}
}

func (l *loader) machinePools(r reader, f field) {
	for _, e := range r.list(f) {
		m := r.mapping(e, []string{"name", "cap"})
		name := r.text(m["name"])
		if !validName(name) {
			r.fault(e, "", "a machine pool needs a name of letters, digits, '.', '_' and '-'")
		}
		if slices.Contains(l.pools, name) {
			r.fault(e, "", "there are two machine pools named %s", name)
		}
		limit := r.cap(m["cap"])
		if limit == (ci.Resources{}) {
			r.fault(e, "such as cap: {maxCpu: 16, maxMemory: 64g}", "a machine pool needs a cap")
		}
		if l.config.Pools == nil {
			l.config.Pools = map[string]ci.Resources{}
		}
		l.config.Pools[name] = limit
		l.pools = append(l.pools, name)
	}
}

func (l *loader) entries(r reader, f field) {
	for _, e := range r.list(f) {
		l.config.Scalers = append(l.config.Scalers, l.entry(r, e))
	}
}

// finish checks what spans entries and files.
func (l *loader) finish(file string) (*Config, []Problem) {
	if len(l.config.Scalers) == 0 && Errors(l.problems) == nil {
		l.reader.fault(field{l.main.node, "scalers"}, "add at least one scaler", "is required")
	}
	l.checkNames()
	l.checkOverlaps()
	for i := range l.config.Scalers {
		l.checkKind(&l.config.Scalers[i])
	}
	sortProblems(l.problems)
	if Errors(l.problems) != nil {
		return nil, l.problems
	}
	l.config.File = file
	return &l.config, l.problems
}

func (l *loader) checkNames() {
	seen := map[string]Entry{}
	for _, e := range l.config.Scalers {
		key := strings.ToLower(e.Name)
		if first, twice := seen[key]; twice && key != "" {
			e.reader.fault(e.field, "give it another name", "there are two scalers named %s (the first is in %s, line %d)", e.Name, first.reader.file, first.field.node.Line)
			continue
		}
		seen[key] = e
	}
}

// checkOverlaps refuses one label set in two scalers (CF-7), unless one is for jobs that name an image and the other for those that do not.
func (l *loader) checkOverlaps() {
	type owner struct {
		name string
		use  backend.ImageUse
	}
	owners := map[string][]owner{}
	for _, e := range l.config.Scalers {
		kind, _ := l.kind(e.Type)
		for _, s := range e.LabelSets {
			key, own := ci.LabelKey(s.Labels), owner{e.Name, kind.ImagesOf(s.Options)}
			if key == "" {
				continue
			}
			i := slices.IndexFunc(owners[key], func(o owner) bool { return o.name != own.name && !o.use.Apart(own.use) })
			if i >= 0 {
				e.reader.fault(s.field, "give one of them a label of its own", "label set [%s] is offered by both %s and %s", key, owners[key][i].name, e.Name)
				continue
			}
			owners[key] = append(owners[key], own)
		}
	}
}

func (l *loader) checkKind(e *Entry) {
	k, ok := l.kind(e.Type)
	if !ok || k.Check == nil {
		return
	}
	for _, f := range k.Check(e.Backend()) {
		at := e.locate(f.Key)
		p := Problem{Message: f.Message, Cure: f.Cure, Warning: f.Warning}
		e.reader.add(at, p)
	}
}

func (l *loader) kind(name string) (backend.Kind, bool) {
	i := slices.IndexFunc(l.options.Kinds, func(k backend.Kind) bool { return k.Type == name })
	if i < 0 {
		return backend.Kind{}, false
	}
	return l.options.Kinds[i], true
}

// Backend is the entry as its backend sees it.
func (e *Entry) Backend() backend.Entry {
	out := backend.Entry{Name: e.Name, Options: e.Options}
	for _, s := range e.LabelSets {
		out.Sets = append(out.Sets, backend.Set{
			Key: ci.LabelKey(s.Labels), Labels: s.Labels, Resources: s.Resources, Env: s.Env, Network: s.Network, Options: s.Options,
		})
	}
	return out
}
