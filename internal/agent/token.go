package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const maxTokenBytes = 4096

var errNoToken = errors.New("no agent token: give KICI_AGENT_TOKEN_FILE (or --token-file), KICI_AGENT_TOKEN_FD or KICI_AGENT_TOKEN")

// loadToken reads the token from where it was left. A descriptor is read to its end and closed, so that nothing the agent
// starts can have it.
func (c *Config) loadToken() (string, error) {
	switch {
	case c.TokenFile != "":
		f, err := os.Open(c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the agent token: %w", err)
		}
		defer f.Close()
		return readToken(f, c.TokenFile)
	case c.TokenFD > 0:
		f := os.NewFile(uintptr(c.TokenFD), "token")
		if f == nil {
			return "", fmt.Errorf("read the agent token: file descriptor %d is not open", c.TokenFD)
		}
		defer f.Close()
		return readToken(f, fmt.Sprintf("file descriptor %d", c.TokenFD))
	case c.Token != "":
		return strings.TrimSpace(c.Token), nil
	}
	return "", errNoToken
}

func readToken(r io.Reader, name string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxTokenBytes))
	if err != nil {
		return "", fmt.Errorf("read the agent token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n\x00") {
		return "", fmt.Errorf("read the agent token: %s does not hold one", name)
	}
	return token, nil
}
