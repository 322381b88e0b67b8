package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// call evaluates a function. The parser has checked its name and the number of its arguments.
func (e *evaluator) call(n *node) (any, error) {
	if isStatus(n.name) {
		return e.status(n.name), nil
	}
	args := make([]any, len(n.args))
	for i, a := range n.args {
		v, err := e.eval(a)
		if err != nil {
			return nil, err
		}
		if f, ok := v.(filtered); ok {
			v = []any(f)
		}
		if err = e.charge(size(v)); err != nil {
			return nil, err
		}
		args[i] = v
	}
	switch n.name {
	case "contains":
		return e.contains(args[0], args[1])
	case "startsWith", "endsWith":
		return e.affix(n.name, args[0], args[1])
	case "format":
		return e.format(args)
	case "join":
		return e.join(args)
	case "toJSON":
		return e.toJSON(args[0])
	case "fromJSON":
		return e.fromJSON(args[0])
	}
	return e.hashFiles(args)
}

func (e *evaluator) status(name string) bool {
	s := e.env.Status
	switch name {
	case "always":
		return true
	case "success":
		return s == "" || s == "success"
	}
	return s == name || name == "failure" && s == "failed"
}

func (e *evaluator) contains(in, what any) (any, error) {
	if list, ok := in.([]any); ok {
		for _, element := range list {
			item, err := e.norm(element)
			if err != nil {
				return nil, err
			}
			if err = e.charge(1 + min(size(item), size(what))); err != nil {
				return nil, err
			}
			if equal(item, what) {
				return true, nil
			}
		}
		return false, nil
	}
	if !isPrimitive(in) || !isPrimitive(what) {
		return false, nil
	}
	return strings.Contains(strings.ToLower(Text(in)), strings.ToLower(Text(what))), nil
}

func (e *evaluator) affix(name string, in, what any) (any, error) {
	if !isPrimitive(in) || !isPrimitive(what) {
		return false, nil
	}
	s, w := strings.ToLower(Text(in)), strings.ToLower(Text(what))
	if name == "startsWith" {
		return strings.HasPrefix(s, w), nil
	}
	return strings.HasSuffix(s, w), nil
}

// builder makes a string that may not exceed MaxOutput and pays for its bytes.
type builder struct {
	strings.Builder
	e *evaluator
}

func (b *builder) add(s string) error {
	if b.Len()+len(s) > MaxOutput {
		return fmt.Errorf("result is longer than %d bytes", MaxOutput)
	}
	b.WriteString(s)
	return b.e.charge(len(s))
}

// format replaces {0}, {1}, … by its arguments; {{ and }} are braces.
func (e *evaluator) format(args []any) (any, error) {
	text, args := Text(args[0]), args[1:]
	b := builder{e: e}
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			return b.String() + text, b.add(text)
		}
		if err := b.add(text[:i]); err != nil {
			return nil, err
		}
		text = text[i:]
		if len(text) > 1 && text[1] == text[0] {
			if err := b.add(text[:1]); err != nil {
				return nil, err
			}
			text = text[2:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if end < 2 {
			return nil, errors.New("format: { and } that are not placeholders are written {{ and }}")
		}
		k, err := strconv.Atoi(text[1:end])
		if err != nil || k < 0 || k >= len(args) {
			return nil, fmt.Errorf("format: no argument for {%s}", text[1:end])
		}
		if err = b.add(Text(args[k])); err != nil {
			return nil, err
		}
		text = text[end+1:]
	}
	return b.String(), nil
}

func (e *evaluator) join(args []any) (any, error) {
	sep := ","
	if len(args) > 1 {
		sep = Text(args[1])
	}
	list, ok := args[0].([]any)
	if !ok {
		if isPrimitive(args[0]) {
			return Text(args[0]), nil
		}
		return "", nil
	}
	b := builder{e: e}
	for i, item := range list {
		if i > 0 {
			if err := b.add(sep); err != nil {
				return nil, err
			}
		}
		if err := b.add(Text(item)); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

func (e *evaluator) toJSON(v any) (any, error) {
	s, err := encode(v, "  ")
	if err != nil {
		return nil, fmt.Errorf("toJSON: %w", err)
	}
	if len(s) > MaxOutput {
		return nil, fmt.Errorf("toJSON: result is longer than %d bytes", MaxOutput)
	}
	return s, e.charge(len(s))
}

// parseCost is what decoding a byte of JSON costs, in units of copying one.
const parseCost = 8

func (e *evaluator) fromJSON(v any) (any, error) {
	var out any
	text := Text(v)
	if err := e.charge(parseCost * len(text)); err != nil {
		return nil, err
	}
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("fromJSON: the text is empty")
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("fromJSON: %w", err)
	}
	return out, nil
}

func (e *evaluator) hashFiles(args []any) (any, error) {
	if e.env.HashFiles == nil {
		return nil, errors.New("hashFiles is available only in steps, on the agent")
	}
	patterns := make([]string, len(args))
	for i, a := range args {
		patterns[i] = Text(a)
	}
	return e.env.HashFiles(patterns)
}
