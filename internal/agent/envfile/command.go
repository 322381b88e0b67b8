package envfile

import "strings"

// Command is a workflow command: "::name key=value,key=value::data" at the start of a line.
type Command struct {
	Name, Data string
	Properties map[string]string
}

// MaxCommandBytes bounds a line that is looked at as a command; longer ones are ordinary output.
const MaxCommandBytes = 128 << 10

// ParseCommand reads one line, without its newline.
func ParseCommand(line string) (Command, bool) {
	line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t")
	body, ok := strings.CutPrefix(line, "::")
	if !ok {
		return Command{}, false
	}
	head, data, ok := strings.Cut(body, "::")
	if !ok {
		return Command{}, false
	}
	name, props, _ := strings.Cut(head, " ")
	if name == "" {
		return Command{}, false
	}
	c := Command{Name: strings.ToLower(name), Data: unescape(data)}
	for kv := range strings.SplitSeq(props, ",") {
		if k, v, ok := strings.Cut(strings.TrimSpace(kv), "="); ok && k != "" {
			if c.Properties == nil {
				c.Properties = map[string]string{}
			}
			c.Properties[k] = unescapeProperty(v)
		}
	}
	return c, true
}

func unescape(s string) string {
	return strings.NewReplacer("%0D", "\r", "%0A", "\n", "%25", "%").Replace(s)
}

func unescapeProperty(s string) string {
	return strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%").Replace(s)
}
