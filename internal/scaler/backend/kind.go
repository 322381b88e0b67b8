package backend

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// Kind is one type of backend, as app plugs it in: which keys of scalers.yaml are its own, what is wrong with an entry, and how
// to make one. scalers.yaml is decoded by scaler, strictly and with positions, from these tables.
type Kind struct {
	Type         string
	HostPlatform bool  // its agents have this host's operating system and architecture (SC-8)
	Isolates     bool  // its agents have a network of their own, and networkPolicy limits it
	Keys         []Key // of a scaler entry
	SetKeys      []Key // of a label set
	// Images says which jobs a label set of these options runs, by their images; nil: those that name none.
	Images func(set Options) ImageUse
	// Check finds what is wrong with an entry beyond the form of single keys, on this host. nil checks nothing.
	Check func(Entry) []Fault
	// New makes the backend. An error ends start-up.
	New func(Entry, Host) (Backend, error)
}

// ImageUse is which jobs a label set runs.
type ImageUse int

// The uses of images.
const (
	NoImages   ImageUse = iota + 1 // jobs that name no image
	AnyImage                       // those, and jobs that name one
	OnlyImages                     // jobs that name one
)

// ImagesOf is the use of images of a label set.
func (k Kind) ImagesOf(set Options) ImageUse {
	if k.Images == nil {
		return NoImages
	}
	return k.Images(set)
}

// Apart reports whether no job can be for both: the same labels may be offered for the one and for the other.
func (u ImageUse) Apart(o ImageUse) bool {
	return u == NoImages && o == OnlyImages || u == OnlyImages && o == NoImages
}

// KeyType is the type of a key's value.
type KeyType int

// The key types.
const (
	KeyString  KeyType = iota + 1
	KeyBool            // true or false
	KeyInt             // a positive integer
	KeyStrings         // a list of strings
)

// Key is one key of scalers.yaml.
type Key struct {
	Name string
	Type KeyType
	Doc  string
	// Restart says that a change of the key waits for a restart of the server.
	Restart bool
}

// Entry is one scaler of scalers.yaml, as its backend sees it.
type Entry struct {
	Name     string
	Options  Options
	Sets     []Set
	Retiring bool // no longer configured: it only ends and lists what is left, and has no sets
}

// Set is one label set of an Entry.
type Set struct {
	Key       string // declared labels, normalised (SC-3); Spec.LabelSet names it
	Labels    []string
	Resources ci.Claim
	Env       map[string]string
	Network   netpolicy.Policy
	Options   Options
}

// Options are the values of a kind's own keys, by name; a key that was not set is missing.
type Options map[string]any

// String returns a KeyString, "" when it was not set.
func (o Options) String(name string) string { s, _ := o[name].(string); return s }

// Bool returns a KeyBool, false when it was not set.
func (o Options) Bool(name string) bool { b, _ := o[name].(bool); return b }

// Int returns a KeyInt, 0 when it was not set.
func (o Options) Int(name string) int64 { n, _ := o[name].(int64); return n }

// Strings returns a KeyStrings, nil when it was not set.
func (o Options) Strings(name string) []string { s, _ := o[name].([]string); return s }

// Fault is something wrong with an entry. Key is a key of the entry ("runAs"), or of one of its label sets
// (SetKey(1, "binaryPath")).
type Fault struct {
	Key, Message, Cure string
	Warning            bool
}

// SetKey names a key of the i-th label set for Fault.Key.
func SetKey(i int, key string) string { return "labelSets[" + strconv.Itoa(i) + "]." + key }

// Host is what a backend gets from the node that runs it.
type Host struct {
	NodeID  string
	Cluster string   // its name, for what backends name outside their own folder (CLU-3)
	Dir     string   // data directory; backends keep their files below <Dir>/agents
	Binary  string   // this executable, which is its own agent (D15)
	Environ []string // of this process
	// AgentSocket is a socket on this host that serves agents, alone in its folder; '' for none. Spec.Socket says which agents may use it.
	AgentSocket string
	Leaks       *Leaks // counts what backends find by themselves
	Log         *slog.Logger
	Now         func() time.Time
}
