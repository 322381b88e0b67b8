package local

import (
	"bytes"
	"strings"

	"github.com/kici-go/kici/internal/agent/envfile"
)

// ReadSecrets reads a file of name=value lines and name<<DELIMITER blocks (envfile.Parse). Lines that begin with # before the
// first = are comments. The file is bounded by envfile.MaxFileBytes.
func ReadSecrets(file string) (map[string]string, error) {
	data, err := envfile.Read(file)
	if err != nil {
		return nil, err
	}
	pairs, err := envfile.Parse(file, uncomment(data))
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		out[strings.TrimSpace(p.Name)] = p.Value
	}
	return out, nil
}

// uncomment empties comment lines, so that the numbers of the others stay. Inside a block a # is text.
func uncomment(data []byte) []byte {
	lines := bytes.Split(data, []byte("\n"))
	until := ""
	for i, l := range lines {
		text := strings.TrimSuffix(string(l), "\r")
		switch {
		case until != "":
			if text == until {
				until = ""
			}
		case strings.HasPrefix(strings.TrimSpace(text), "#"):
			lines[i] = nil
		default:
			if name, delimiter, ok := strings.Cut(text, "<<"); ok && !strings.Contains(name, "=") {
				until = delimiter
			}
		}
	}
	return bytes.Join(lines, []byte("\n"))
}
