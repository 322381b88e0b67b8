package scaler

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// Backend types of the specification that this version cannot start yet, and the reserved one.
var unbuilt = []string{"firecracker", "event"}

const reservedType = "kubernetes"

var (
	entryKeys = []string{
		"name", "type", "maxAgents", "maxConcurrentSpawns", "labelSets", "orchestratorUrl", "warmPool", "mandatoryLabels",
		"platform", "roles", "resourceCap", "machinePool", "minFreeDisk",
	}
	setKeys = []string{"labels", "resources", "env", "networkPolicy", "backpressureMode"}
)

var (
	namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`) })
	envPattern  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
)

func validName(s string) bool { return namePattern().MatchString(s) }

// entry reads one scaler.
func (l *loader) entry(r reader, f field) Entry {
	e := Entry{field: f, reader: r}
	kind, built := l.kind(typeOf(r, f))
	var known []string // of a type that is not built, every key may be right
	switch {
	case built:
		known = withKeys(entryKeys, kind.Keys)
	case typeOf(r, f) == "":
		known = slices.Clone(entryKeys)
		for _, k := range l.options.Kinds {
			known = withKeys(known, k.Keys)
		}
	}
	m := r.mapping(f, known)
	e.Name = l.entryName(r, f, m["name"])
	e.Type = l.entryType(r, f, m["type"])
	if !m["maxAgents"].present() {
		r.fault(field{f.node, f.path + ".maxAgents"}, "say how many agents it may run at once", "is required")
	}
	e.MaxAgents = r.integer(m["maxAgents"], 1, 1)
	e.MaxConcurrentSpawns = int(r.integer(m["maxConcurrentSpawns"], DefaultMaxConcurrentSpawns, 1))
	e.URL = orchestratorURL(r, m["orchestratorUrl"])
	e.Mandatory = labelList(r, m["mandatoryLabels"])
	e.Platform = platform(r, m["platform"])
	e.Roles = roles(r, m["roles"])
	e.Cap = r.cap(m["resourceCap"])
	e.MachinePool = r.text(m["machinePool"])
	if e.MachinePool != "" && !slices.Contains(l.pools, e.MachinePool) {
		r.fault(m["machinePool"], "declare it under machinePools", "there is no machine pool %q", e.MachinePool)
	}
	e.MinFreeDisk = r.memory(m["minFreeDisk"])
	if !built {
		l.sharedSets(r, m["labelSets"])
		return e
	}
	e.Options = options(r, m, kind.Keys)
	e.LabelSets = l.labelSets(r, field{f.node, f.path + ".labelSets"}, m["labelSets"], kind)
	e.WarmPool = warmPool(r, m["warmPool"], e.LabelSets)
	if i := slices.IndexFunc(e.LabelSets, func(s LabelSet) bool { return kind.ImagesOf(s.Options) == backend.OnlyImages }); i >= 0 && e.WarmPool.Enabled { // BM-2
		r.fault(m["warmPool"], "give the label set an image, or switch the pool off", "label set %d has no image: which one its agents need, only a job says", i)
	}
	l.checkGates(r, &e)
	return e
}

func typeOf(r reader, f field) string {
	quiet := reader{r.file, new([]Problem)}
	return quiet.text(quiet.mapping(f, nil)["type"])
}

// misspelt reports whether a mapping has a key that most likely means key.
func misspelt(f field, key string) bool {
	n := resolve(f.node)
	if n == nil || n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i].Value; k != key && suggest.Nearest(k, entryKeys) == key {
			return true
		}
	}
	return false
}

func (l *loader) entryName(r reader, f, name field) string {
	switch s := r.text(name); {
	case !name.present():
		r.fault(field{f.node, f.path + ".name"}, "", "is required")
	case !validName(s):
		r.fault(name, "", "must start with a letter or digit and have at most 63 letters, digits, '.', '_' and '-'")
	default:
		return s
	}
	return ""
}

func (l *loader) entryType(r reader, f, typ field) string {
	s := r.text(typ)
	var known []string
	for _, k := range l.options.Kinds {
		known = append(known, k.Type)
	}
	switch {
	case !typ.present() && misspelt(f, "type"): // said already, with what is meant
	case !typ.present():
		r.fault(field{f.node, f.path + ".type"}, "use "+strings.Join(known, " or "), "is required")
	case slices.Contains(known, s):
		return s
	case slices.Contains(unbuilt, s):
		r.fault(typ, "this version has "+strings.Join(known, ", "), "the %s backend is not built yet", s)
	case s == reservedType:
		r.fault(typ, "this version has "+strings.Join(known, ", "), "type %s is reserved", s)
	default:
		r.oneOf(typ, append(known, unbuilt...)...)
	}
	return ""
}

// labelSets reads the label sets of a built kind.
func (l *loader) labelSets(r reader, missing, f field, kind backend.Kind) []LabelSet {
	elements := r.list(f)
	if len(elements) == 0 {
		r.fault(missing, "add a label set", "needs at least one label set")
	}
	var out []LabelSet
	for _, e := range elements {
		m := r.mapping(e, withKeys(setKeys, kind.SetKeys))
		s := LabelSet{field: e, Labels: labelList(r, m["labels"]), Options: options(r, m, kind.SetKeys)}
		if len(s.Labels) == 0 {
			r.fault(field{e.node, e.path + ".labels"}, "", "needs at least one label")
		}
		s.Resources = r.resources(m["resources"]).Or(l.defaults)
		s.Env = environment(r, m["env"])
		s.Network = networkPolicy(r, m["networkPolicy"], kind)
		if mode := r.oneOf(m["backpressureMode"], "pause", "drop"); mode != "" {
			s.Options["backpressureMode"] = mode
		}
		out = append(out, s)
	}
	return out
}

// sharedSets checks the keys that every type has, for a type that is not built.
func (l *loader) sharedSets(r reader, f field) {
	for _, e := range r.list(f) {
		m := r.mapping(e, nil)
		labelList(r, m["labels"])
		r.resources(m["resources"])
		environment(r, m["env"])
	}
}

func withKeys(shared []string, own []backend.Key) []string {
	out := slices.Clone(shared)
	for _, k := range own {
		out = append(out, k.Name)
	}
	return out
}

// options reads a kind's own keys.
func options(r reader, m map[string]field, keys []backend.Key) backend.Options {
	out := backend.Options{}
	for _, k := range keys {
		f := m[k.Name]
		if !f.present() {
			continue
		}
		switch k.Type {
		case backend.KeyString:
			out[k.Name] = r.text(f)
		case backend.KeyBool:
			out[k.Name] = r.boolean(f, false)
		case backend.KeyInt:
			out[k.Name] = r.integer(f, 0, 1)
		case backend.KeyStrings:
			out[k.Name] = r.texts(f)
		}
	}
	return out
}

// labelList reads labels: no kici: prefix, none that a comma-separated list could not carry.
func labelList(r reader, f field) []string {
	var out []string
	for _, e := range r.list(f) {
		s := strings.TrimSpace(r.text(e))
		switch {
		case s == "":
			r.fault(e, "", "a label must not be empty")
		case strings.HasPrefix(strings.ToLower(s), "kici:"):
			r.fault(e, "choose another name", "labels that start with kici: are kici's own")
		case len(s) > 128 || strings.ContainsAny(s, ", \t\r\n"):
			r.fault(e, "", "a label must have at most 128 characters and no comma or white space")
		default:
			out = append(out, s)
		}
	}
	return ci.NormalizeLabels(out)
}

func orchestratorURL(r reader, f field) string {
	s := r.text(f)
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme) {
		r.fault(f, "such as wss://ci.example.com/ws", "must be a ws, wss, http or https URL")
		return ""
	}
	return s
}

func platform(r reader, f field) Platform {
	m := r.mapping(f, []string{"os", "arch"})
	return Platform{OS: r.oneOf(m["os"], "linux", "macos", "windows"), Arch: r.oneOf(m["arch"], "x64", "arm64")}
}

// The roles of SC-4.
var allRoles = []string{"builder", "init-runner"}

func roles(r reader, f field) []string {
	if !f.present() {
		return allRoles
	}
	out := []string{}
	for _, e := range r.list(f) {
		switch role := r.oneOf(e, "builder", "init-runner", "all"); role {
		case "":
		case "all":
			out = append(out, allRoles...)
		default:
			out = append(out, role)
		}
	}
	return ci.NormalizeLabels(out)
}

func warmPool(r reader, f field, sets []LabelSet) WarmPool {
	m := r.mapping(f, []string{"enabled", "size", "idleTimeoutSeconds"})
	w := WarmPool{
		Enabled:     r.boolean(m["enabled"], false),
		Size:        r.integer(m["size"], 0, 0),
		IdleSeconds: r.integer(m["idleTimeoutSeconds"], DefaultWarmIdleSeconds, 1),
	}
	if !w.Enabled {
		return w
	}
	if i := slices.IndexFunc(sets, func(s LabelSet) bool { return s.Resources.Requests.IsZero() }); i >= 0 {
		r.warn(f, "give the label set resources", "the warm pool is off: label set %d has no cpu or memory", i)
		return WarmPool{}
	}
	return w
}

// environment reads a string map with POSIX names (CF-11).
func environment(r reader, f field) map[string]string {
	out := map[string]string{}
	for key, v := range r.mapping(f, nil) {
		if !envPattern().MatchString(key) {
			r.fault(v, "", "%s is no name of an environment variable", strconv.Quote(key))
			continue
		}
		out[key] = r.text(v)
	}
	return out
}

// locate finds where a key that a kind's check names stands: "runAs" or "labelSets[1].image".
func (e *Entry) locate(key string) field {
	quiet := reader{e.reader.file, new([]Problem)}
	f := field{e.field.node, e.field.path + "." + key}
	m := quiet.mapping(e.field, nil)
	if rest, ok := strings.CutPrefix(key, "labelSets["); ok {
		index, name, _ := strings.Cut(rest, "].")
		i, err := strconv.Atoi(index)
		if err != nil || i >= len(e.LabelSets) {
			return f
		}
		m, key = quiet.mapping(e.LabelSets[i].field, nil), name
		f.node = e.LabelSets[i].field.node
	}
	if v, ok := m[key]; ok {
		f.node = v.node
	}
	return f
}
