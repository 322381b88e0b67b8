package setting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Types of settings, as shown.
const (
	TypeNumber  = "number"
	TypeBool    = "boolean"
	TypeText    = "text"
	TypeList    = "list"
	TypeMapping = "map"
)

// Key describes one setting.
type Key struct {
	Name     string // in JSON
	Type     string
	Unit     string // ms, seconds, hours, days, bytes; "" for a plain number
	Min, Max int64  // of a number
	ZeroOff  bool   // 0 turns it off, whatever Min says
	Restart  bool   // takes effect at the next start
	Later    bool   // accepted and kept, but nothing in this version reads it
	Switch   bool   // guards something: its value is the safe one when the settings cannot be read (CLU-28)
	About    string // one phrase
}

// Variable is the environment variable that sets the key for servers where nobody has set it live.
func (k Key) Variable() string {
	var b strings.Builder
	b.WriteString("KICI_")
	for _, r := range k.Name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// keyOf is a Key of the settings T: how its value gets into T and out of it.
type keyOf[T any] struct {
	Key
	set   func(*T, json.RawMessage) error // checks; the error is half a sentence that begins with "must"
	get   func(*T) any                    // as JSON shows it
	first func(*T)                        // sets the default
	safe  func(*T)                        // of a Switch: sets what denies
}

func (k *keyOf[T]) later() *keyOf[T]   { k.Later = true; return k }
func (k *keyOf[T]) restart() *keyOf[T] { k.Restart = true; return k }
func (k *keyOf[T]) off() *keyOf[T]     { k.ZeroOff = true; return k }

// guard makes the key a switch that denies when it cannot be read.
func (k *keyOf[T]) guard(deny func(*T)) *keyOf[T] { k.Switch, k.safe = true, deny; return k }

func (k *keyOf[T]) most(n int64) *keyOf[T] { k.Max = n; return k }

var errWhole = errors.New("must be a whole number")

// number is a key whose value is a number of units of which one is size in T's field.
func (k *keyOf[T]) number(size int64, at func(*T) *int64) *keyOf[T] {
	k.Type = TypeNumber
	k.set = func(t *T, text json.RawMessage) error {
		var n int64
		if err := json.Unmarshal(text, &n); err != nil {
			return errWhole
		}
		if n < k.Min && (n != 0 || !k.ZeroOff) {
			if k.ZeroOff && k.Min > 1 {
				return fmt.Errorf("must be 0 or at least %d", k.Min)
			}
			return fmt.Errorf("must be at least %d", k.least())
		}
		if n > k.Max {
			return fmt.Errorf("must be at most %d", k.Max)
		}
		*at(t) = n * size
		return nil
	}
	k.get = func(t *T) any { return *at(t) / size }
	return k
}

func (k *keyOf[T]) least() int64 {
	if k.ZeroOff {
		return 0
	}
	return k.Min
}

const (
	greatest = int64(1) << 50             // of numbers without a maximum of their own
	longest  = 100 * 365 * 24 * time.Hour // of spans
)

// count is a key of a plain number, or of bytes.
func count[T any](name string, at func(*T) *int64, normal, least int64, about string) *keyOf[T] {
	k := &keyOf[T]{Key: Key{Name: name, Min: least, Max: greatest, About: about}}
	if strings.HasSuffix(name, "Bytes") {
		k.Unit = "bytes"
	}
	k.first = func(t *T) { *at(t) = normal }
	return k.number(1, at)
}

var units = []struct {
	suffix, name string
	size         time.Duration
}{{"Ms", "ms", time.Millisecond}, {"Seconds", "seconds", time.Second}, {"Hours", "hours", time.Hour}, {"Days", "days", 24 * time.Hour}}

// span is a key of a time, in the unit that its name ends with.
func span[T any](name string, at func(*T) *time.Duration, normal, least int64, about string) *keyOf[T] {
	for _, u := range units {
		if !strings.HasSuffix(name, u.suffix) {
			continue
		}
		k := &keyOf[T]{Key: Key{Name: name, Unit: u.name, Min: least, Max: int64(longest / u.size), About: about}}
		k.first = func(t *T) { *at(t) = time.Duration(normal) * u.size }
		return k.number(int64(u.size), func(t *T) *int64 { return (*int64)(at(t)) })
	}
	panic("setting " + name + ": its name does not end with a unit")
}

// toggle is a key of true or false.
func toggle[T any](name string, at func(*T) *bool, normal bool, about string) *keyOf[T] {
	return &keyOf[T]{
		Key: Key{Name: name, Type: TypeBool, About: about},
		set: func(t *T, text json.RawMessage) error {
			var v bool
			if json.Unmarshal(text, &v) != nil {
				return errors.New("must be true or false")
			}
			*at(t) = v
			return nil
		},
		get:   func(t *T) any { return *at(t) },
		first: func(t *T) { *at(t) = normal },
	}
}

const textKept = 2000

// address is a key of an absolute URL, or of none.
func address[T any](name string, at func(*T) *string, about string) *keyOf[T] {
	return &keyOf[T]{
		Key: Key{Name: name, Type: TypeText, About: about},
		set: func(t *T, text json.RawMessage) error {
			var v string
			if json.Unmarshal(text, &v) != nil || len(v) > textKept {
				return errors.New("must be an absolute http or https URL")
			}
			u, err := url.Parse(v)
			if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
				return errors.New("must be an absolute http or https URL")
			}
			*at(t) = v
			return nil
		},
		get: func(t *T) any {
			if *at(t) == "" {
				return nil
			}
			return *at(t)
		},
		first: func(t *T) { *at(t) = "" },
	}
}

const listKept = 1000

// repos is a key of rules about repositories.
func repos[T any](name string, at func(*T) *[]RepoRule, about string) *keyOf[T] {
	return &keyOf[T]{
		Key: Key{Name: name, Type: TypeList, About: about},
		set: func(t *T, text json.RawMessage) error {
			list := []RepoRule{}
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			if d.Decode(&list) != nil || len(list) > listKept {
				return fmt.Errorf(`must be a list of at most %d {"routingKey": …, "pattern": …}`, listKept)
			}
			for _, r := range list {
				if strings.TrimSpace(r.Pattern) == "" || len(r.Pattern)+len(r.RoutingKey) > textKept {
					return errors.New("must have a pattern in every entry")
				}
			}
			*at(t) = list
			return nil
		},
		get: func(t *T) any {
			if *at(t) == nil {
				return nil
			}
			return *at(t)
		},
		first: func(t *T) { *at(t) = nil },
	}
}

// words is a key of a list of known words.
func words[T any](name string, at func(*T) *[]string, known []string, about string) *keyOf[T] {
	return &keyOf[T]{
		Key: Key{Name: name, Type: TypeList, About: about},
		set: func(t *T, text json.RawMessage) error {
			list := []string{}
			if json.Unmarshal(text, &list) != nil {
				return errors.New("must be a list of names")
			}
			for _, w := range list {
				if !slices.Contains(known, w) {
					return fmt.Errorf("must hold known names only, not %q", clip(w))
				}
			}
			slices.Sort(list)
			*at(t) = slices.Compact(list)
			return nil
		},
		get:   func(t *T) any { return append([]string{}, *at(t)...) },
		first: func(t *T) { *at(t) = nil },
	}
}

// choices is a key that gives each known operation one of some values.
func choices[T any](name string, at func(*T) *map[string]string, operations, values []string, about string) *keyOf[T] {
	return &keyOf[T]{
		Key: Key{Name: name, Type: TypeMapping, About: about},
		set: func(t *T, text json.RawMessage) error {
			m := map[string]string{}
			if json.Unmarshal(text, &m) != nil {
				return errors.New("must be an object of operation and value")
			}
			for op, v := range m {
				switch {
				case !slices.Contains(operations, op):
					return fmt.Errorf("must name known operations only (%s), not %q", strings.Join(operations, ", "), clip(op))
				case !slices.Contains(values, v):
					return fmt.Errorf("must be one of %s for %s", strings.Join(values, ", "), op)
				}
			}
			*at(t) = m
			return nil
		},
		get: func(t *T) any {
			if *at(t) == nil {
				return map[string]string{}
			}
			return *at(t)
		},
		first: func(t *T) { *at(t) = nil },
	}
}

func clip(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// fromVariable turns the text of an environment variable into JSON: a text needs no quotes there.
func (k Key) fromVariable(text string) json.RawMessage {
	if k.Type == TypeText {
		return json.RawMessage(strconv.Quote(text))
	}
	if !json.Valid([]byte(text)) {
		return json.RawMessage(strconv.Quote(text)) // refused with the key's own sentence
	}
	return json.RawMessage(text)
}
