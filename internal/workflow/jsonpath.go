package workflow

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Bounds of a JSONPath and of what it may visit.
const (
	maxPathBytes = 500
	maxPathSteps = 50
	maxPathNodes = 100_000
)

// jsonPath is $ followed by .name, ['name'], [0], [-1], [*], .* and ..name (any depth).
type jsonPath []pathStep

type pathStep struct {
	deep  bool // at any depth below
	all   bool // * : every child
	name  string
	index *int
}

func parseJSONPath(s string) (jsonPath, error) {
	if len(s) > maxPathBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxPathBytes)
	}
	rest, ok := strings.CutPrefix(s, "$")
	if !ok {
		return nil, errors.New("it must begin with $")
	}
	var p jsonPath
	for rest != "" {
		step, n, err := parsePathStep(rest)
		if err != nil {
			return nil, err
		}
		if p = append(p, step); len(p) > maxPathSteps {
			return nil, fmt.Errorf("more than %d steps", maxPathSteps)
		}
		rest = rest[n:]
	}
	return p, nil
}

func parsePathStep(s string) (step pathStep, n int, err error) {
	n = 0
	switch {
	case strings.HasPrefix(s, ".."):
		step.deep, n = true, 2
	case s[0] == '.':
		n = 1
	case s[0] != '[':
		return step, 0, fmt.Errorf("unexpected %q", s[:1])
	}
	if n < len(s) && s[n] == '[' {
		m, err := parseBracket(s[n:], &step)
		return step, n + m, err
	}
	if n == 0 {
		return step, 0, errors.New("unexpected end")
	}
	end := n
	for end < len(s) && s[end] != '.' && s[end] != '[' {
		end++
	}
	step.name = s[n:end]
	switch {
	case step.name == "":
		return step, 0, errors.New("a name is missing after the dot")
	case step.name == "*":
		step.name, step.all = "", true
	case strings.ContainsAny(step.name, " '\"]()*?@,"):
		return step, 0, fmt.Errorf("name %q needs ['…']", step.name)
	}
	return step, end, nil
}

func parseBracket(s string, step *pathStep) (int, error) {
	if len(s) > 1 && (s[1] == '\'' || s[1] == '"') {
		end := strings.Index(s[2:], s[1:2]+"]")
		if end < 0 {
			return 0, errors.New("[ has no ]")
		}
		step.name = s[2 : 2+end]
		return end + 4, nil
	}
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return 0, errors.New("[ has no ]")
	}
	body := s[1:end]
	if body == "*" {
		step.all = true
		return end + 1, nil
	}
	i, err := strconv.Atoi(body)
	if err != nil {
		return 0, fmt.Errorf("[%s] is not supported; use a number, * or 'name'", short(body))
	}
	step.index = &i
	return end + 1, nil
}

// find returns the values at the path. over is true when the document is too large to look through.
func (p jsonPath) find(root any) (values []any, over bool) {
	values = []any{root}
	budget := maxPathNodes
	for _, step := range p {
		var next []any
		for _, v := range values {
			next = step.apply(next, v, &budget)
		}
		if budget < 0 {
			return nil, true
		}
		values = next
	}
	return values, false
}

func (s pathStep) apply(out []any, v any, budget *int) []any {
	if *budget--; *budget < 0 {
		return out
	}
	switch v := v.(type) {
	case map[string]any:
		switch {
		case s.all:
			*budget -= len(v)
			for _, k := range sortedKeys(v) {
				out = append(out, v[k])
			}
		case s.index == nil:
			if c, ok := v[s.name]; ok {
				out = append(out, c)
			}
		}
		if s.deep {
			for _, k := range sortedKeys(v) {
				out = s.apply(out, v[k], budget)
			}
		}
	case []any:
		switch {
		case s.all:
			*budget -= len(v)
			out = append(out, v...)
		case s.index != nil:
			i := *s.index
			if i < 0 {
				i += len(v)
			}
			if i >= 0 && i < len(v) {
				out = append(out, v[i])
			}
		}
		if s.deep {
			for _, c := range v {
				out = s.apply(out, c, budget)
			}
		}
	}
	return out
}

// regexText takes /source/flags apart; ok is false for any other text.
func regexText(s string) (source, flags string, ok bool) {
	end := strings.LastIndexByte(s, '/')
	if len(s) < 3 || s[0] != '/' || end < 2 || strings.Trim(s[end+1:], "dgimsuvy") != "" {
		return "", "", false
	}
	return s[1:end], s[end+1:], true
}

func compileRegex(source, flags string) (*regexp.Regexp, error) {
	inline := ""
	for _, f := range "ims" {
		if strings.ContainsRune(flags, f) {
			inline += string(f)
		}
	}
	if inline != "" {
		source = "(?" + inline + ")" + source
	}
	if err := checkPattern(source); err != nil {
		return nil, err
	}
	return regexp.Compile(source)
}

// checkExpected reports expected values with a regular expression that cannot be compiled.
func checkExpected(want any) error {
	switch want := want.(type) {
	case []any:
		for _, w := range want {
			if err := checkExpected(w); err != nil {
				return err
			}
		}
	case string:
		if source, flags, ok := regexText(want); ok {
			if _, err := compileRegex(source, flags); err != nil {
				return fmt.Errorf("invalid pattern %s: %w", short(want), err)
			}
		}
	}
	return nil
}

// expected reports whether a value is the expected one: an expected list means any of, a text /re/flags is a regular
// expression (WF-16).
func expected(got, want any) bool {
	switch want := want.(type) {
	case []any:
		for _, w := range want {
			if expected(got, w) {
				return true
			}
		}
		return false
	case string:
		text, isText := got.(string)
		source, flags, ok := regexText(want)
		if !ok || !isText {
			return isText && text == want
		}
		re, err := compileRegex(source, flags)
		return err == nil && re.MatchString(text)
	}
	return reflect.DeepEqual(got, want)
}
