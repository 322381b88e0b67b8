package ci

import (
	"fmt"
	"regexp"
	"strings"
)

// IsLabelPattern reports whether an element of a selector stands for several labels (WF-3): it has a * for any run of characters, or is
// a regular expression between slashes. Everything else is one label.
func IsLabelPattern(element string) bool {
	return isLabelRegexp(element) || strings.Contains(element, "*")
}

func isLabelRegexp(element string) bool {
	return len(element) > 2 && element[0] == '/' && element[len(element)-1] == '/'
}

// CompileLabelPattern returns what tells the labels that a pattern stands for. A pattern with * is for the whole label, a regular
// expression (RE2) for a part of it; neither looks at case. Both take time linear in the label.
func CompileLabelPattern(pattern string) (matches func(label string) bool, err error) {
	if isLabelRegexp(pattern) {
		re, err := regexp.Compile("(?i)" + pattern[1:len(pattern)-1])
		if err != nil {
			return nil, fmt.Errorf("the label pattern %s: %w", pattern, err)
		}
		return re.MatchString, nil
	}
	parts := strings.Split(strings.ToLower(pattern), "*")
	return func(label string) bool { return matchParts(parts, strings.ToLower(label)) }, nil
}

// matchParts reports whether text is the parts in their order with anything between them.
func matchParts(parts []string, text string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return text == first
	}
	if !strings.HasPrefix(text, first) || len(text) < len(first)+len(last) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		at := strings.Index(text, p)
		if at < 0 {
			return false
		}
		text = text[at+len(p):]
	}
	return true
}

// SelectorConflict returns a label that is both required and excluded, "" for none. Patterns that cannot be compiled match nothing.
func SelectorConflict(required, exclude []string) string {
	required = NormalizeLabels(required)
	for _, e := range NormalizeLabels(exclude) {
		matches := func(l string) bool { return l == e }
		if IsLabelPattern(e) {
			if m, err := CompileLabelPattern(e); err == nil {
				matches = func(l string) bool { return l == e || !IsLabelPattern(l) && m(l) }
			}
		}
		for _, l := range required {
			if matches(l) {
				return l
			}
		}
	}
	return ""
}
