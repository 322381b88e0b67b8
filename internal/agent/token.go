package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
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
	case c.TokenStdin:
		token, err := awaitToken(os.Stdin, tokenPatience)
		if err == nil {
			_, err = fmt.Println("the agent has its token") // whoever gave it waits for this
		}
		return token, err
	case c.Token != "":
		return strings.TrimSpace(c.Token), nil
	}
	return "", errNoToken
}

// tokenPatience is how long an agent waits for its token on the standard input. Whoever started it puts up its isolation first.
const tokenPatience = 2 * time.Minute

// awaitToken waits for a token that comes when the agent may begin. The input stays open, so that no other file gets its number. Its end
// without a token means that whoever started the agent has gone: that is ErrNoTokenCame.
func awaitToken(r io.Reader, patience time.Duration) (string, error) {
	type result struct {
		token string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(r, maxTokenBytes)).ReadString('\n')
		if line == "" && errors.Is(err, io.EOF) {
			done <- result{"", ErrNoTokenCame}
			return
		}
		token, err := readToken(strings.NewReader(line), "the standard input")
		done <- result{token, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.token, r.err
	case <-timer.C:
		return "", fmt.Errorf("%w within %s", ErrNoTokenCame, patience)
	}
}

// ErrNoTokenCame ends an agent that was given nothing to begin with. The program's exit status is wire.ExitNoToken then, by which its
// scaler knows that the agent has done nothing.
var ErrNoTokenCame = errors.New("no token came on the standard input")

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
