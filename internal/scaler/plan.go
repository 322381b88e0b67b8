package scaler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// ChangeKind is what a reload does with one scaler (CF-18).
type ChangeKind string

// The kinds of changes.
const (
	ChangeAdded       ChangeKind = "added"
	ChangeKept        ChangeKind = "kept"
	ChangeResurrected ChangeKind = "resurrected" // it was retiring and is named again
	ChangeRetired     ChangeKind = "retired"     // no longer named: its agents finish, and it starts none
	ChangeRefused     ChangeKind = "refused"     // not without a restart; then nothing of the reload applies
)

// Change is what a reload does with one scaler, or, with an empty Name, with the top level.
type Change struct {
	Name, Type string
	Kind       ChangeKind
	Fields     []FieldChange // of one that is kept or comes back
	Reason     string        // of one that is refused
}

// FieldChange is one key that has another value.
type FieldChange struct {
	Key, Old, New string // values for people
	Restart       bool   // the old value stays until the server is started again
}

// ReloadPlan is what a reload would do. It is computed by Compare, applied by Node.Reload as a whole or not at all, and printed as it is.
type ReloadPlan struct {
	File    string
	Changes []Change // the top level first, then scalers in the order of the new file, then those that retire
}

// Refused joins what cannot be applied, "" when all of it can.
func (p ReloadPlan) Refused() string {
	var out []string
	for _, c := range p.Changes {
		if c.Kind == ChangeRefused {
			out = append(out, fmt.Sprintf("scaler %s: %s", c.Name, c.Reason))
		}
	}
	return strings.Join(out, "; ")
}

// Empty reports whether nothing would change.
func (p ReloadPlan) Empty() bool {
	return !slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Kind != ChangeKept || len(c.Fields) > 0 })
}

// Compare says what a reload of next would do to a node that runs have, where the scalers in retiring still have agents (CF-18).
func Compare(have, next *Config, retiring []ScalerID, kinds []backend.Kind) ReloadPlan {
	p := ReloadPlan{File: next.File}
	if fields := compareValues(have.values(), next.values(), nil); len(fields) > 0 {
		p.Changes = append(p.Changes, Change{Kind: ChangeKept, Fields: fields})
	}
	for i := range next.Scalers {
		p.Changes = append(p.Changes, compareEntry(have, &next.Scalers[i], retiring, kinds))
	}
	for _, e := range have.Scalers {
		if _, named := next.entry(e.Name); !named {
			p.Changes = append(p.Changes, Change{Name: e.Name, Type: e.Type, Kind: ChangeRetired})
		}
	}
	return p
}

func compareEntry(have *Config, e *Entry, retiring []ScalerID, kinds []backend.Kind) Change {
	c := Change{Name: e.Name, Type: e.Type}
	sameName := func(id ScalerID) bool { return strings.EqualFold(id.Name, e.Name) }
	old, running := have.entry(e.Name)
	switch i := slices.IndexFunc(retiring, sameName); {
	case running && (old.Type != e.Type || old.Name != e.Name):
		c.Kind = ChangeRefused
		c.Reason = fmt.Sprintf("it is %s of type %s now, and that cannot change while the server runs: restart it, or give the new one another name", old.Name, old.Type)
	case running:
		c.Kind = ChangeKept
		c.Fields = compareValues(old.values(), e.values(), restartKeys(e.Type, kinds))
	case i < 0:
		c.Kind = ChangeAdded
	case retiring[i] != ScalerID{e.Name, e.Type}:
		c.Kind = ChangeRefused
		c.Reason = fmt.Sprintf("agents of %s of type %s, which is retiring, are still there: try again when they have ended", retiring[i].Name, retiring[i].Type)
	default:
		c.Kind = ChangeResurrected
	}
	return c
}

func (c *Config) entry(name string) (*Entry, bool) {
	i := slices.IndexFunc(c.Scalers, func(e Entry) bool { return strings.EqualFold(e.Name, name) })
	if i < 0 {
		return nil, false
	}
	return &c.Scalers[i], true
}

func restartKeys(kind string, kinds []backend.Kind) (keys []string) {
	for _, k := range kinds {
		if k.Type == kind {
			for _, key := range k.Keys {
				if key.Restart {
					keys = append(keys, key.Name)
				}
			}
		}
	}
	return keys
}

// value is a key's setting: what people see of it, and what is compared, which may hold secrets.
type value struct{ text, whole string }

// compareValues lists the keys whose values differ, by name.
func compareValues(old, next map[string]value, restart []string) []FieldChange {
	keys := maps.Clone(old)
	maps.Copy(keys, next)
	var out []FieldChange
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if old[k] == next[k] {
			continue
		}
		c := FieldChange{k, old[k].text, next[k].text, slices.Contains(restart, k)}
		if c.Old == c.New {
			c.New += " (other values)"
		}
		out = append(out, c)
	}
	return out
}

func plain(text string) value { return value{text, text} }

// values are the top level's keys.
func (c *Config) values() map[string]value {
	out := map[string]value{"globalMaxAgents": plain(fmt.Sprint(c.GlobalMaxAgents)), "globalResourceCap": plain(capText(c.GlobalCap))}
	for name, limit := range c.Pools {
		out["machinePools."+name] = plain(capText(limit))
	}
	return out
}

// values are an entry's keys.
func (e *Entry) values() map[string]value {
	out := map[string]value{
		"maxAgents": plain(fmt.Sprint(e.MaxAgents)), "maxConcurrentSpawns": plain(fmt.Sprint(e.MaxConcurrentSpawns)), "orchestratorUrl": plain(e.URL),
		"mandatoryLabels": plain(strings.Join(e.Mandatory, ",")), "platform": plain(strings.Trim(e.Platform.OS+"/"+e.Platform.Arch, "/")),
		"roles": plain(cmp.Or(strings.Join(e.Roles, ","), "none")), "resourceCap": plain(capText(e.Cap)), "machinePool": plain(e.MachinePool), "minFreeDisk": plain(capText(ci.Resources{MemBytes: e.MinFreeDisk})),
	}
	if w := e.WarmPool; w.Enabled {
		out["warmPool"] = plain(fmt.Sprintf("%d agents, surplus idle for %d s", w.Size, w.IdleSeconds))
	}
	for k, v := range e.Options {
		out[k] = plain(valueText(v))
	}
	for i, s := range e.LabelSets {
		at := fmt.Sprintf("labelSets[%d].", i)
		out[at+"labels"] = plain(strings.Join(s.Labels, ","))
		out[at+"resources.requests"] = plain(capText(s.Resources.Requests))
		out[at+"resources.limits"] = plain(capText(s.Resources.Limits))
		out[at+"env"] = value{strings.Join(slices.Sorted(maps.Keys(s.Env)), ","), valueText(s.Env)}
		out[at+"networkPolicy"] = plain(s.Network.String())
		for k, v := range s.Options {
			out[at+k] = plain(valueText(v))
		}
	}
	maps.DeleteFunc(out, func(_ string, v value) bool { return v.text == "" })
	return out
}

// capText is a cap as scalers.yaml has it, "" for none.
func capText(r ci.Resources) string {
	if r.IsZero() {
		return ""
	}
	var parts []string
	if r.CPUMilli > 0 {
		parts = append(parts, fmt.Sprintf("%g CPUs", float64(r.CPUMilli)/1000))
	}
	if r.MemBytes > 0 {
		parts = append(parts, humanize.IBytes(uint64(r.MemBytes)))
	}
	return strings.Join(parts, ", ")
}

func valueText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	text, _ := json.Marshal(v) // texts, numbers, booleans, lists and maps of them always encode
	return string(text)
}

// keepFixed gives an entry the old values of keys that need a restart, so that what runs is what is shown.
func keepFixed(old, next *Entry, fields []FieldChange) {
	for _, f := range fields {
		if !f.Restart {
			continue
		}
		if v, ok := old.Options[f.Key]; ok {
			next.Options[f.Key] = v
		} else {
			delete(next.Options, f.Key)
		}
	}
}
