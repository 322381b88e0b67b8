// Package stepcall is how a running step asks its own orchestrator for something: to emit an event, to add jobs. The agent listens
// on a Unix socket in a directory that is the job's own; `kici event emit` and `kici job add` inside a step find it by
// KICI_STEP_SOCKET and prove with KICI_STEP_TOKEN that they belong to the job. One connection carries one request and one answer,
// each a line of JSON.
//
// Who may reach the socket is whom the directory lets in: the user of the agent, which is the user of the steps. The token keeps
// apart the jobs of one user; it is not in the log (it is masked) and ends with the job.
package stepcall

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/wire"
)

// Names of the variables that steps get.
const (
	SocketVariable = "KICI_STEP_SOCKET"
	TokenVariable  = "KICI_STEP_TOKEN" //nolint:gosec // the name of a variable
)

// maxLine bounds a request or an answer on the socket: the larger of the bounds of wire, with room for JSON's escapes.
const maxLine = 1 << 20

// Request is what a step asks.
type Request struct {
	Token       string          `json:"token"`
	Type        string          `json:"type"` // wire.TypeEventEmit, wire.TypeJobAdd
	RequestID   string          `json:"requestId"`
	Name        string          `json:"name,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	TargetRepos []string        `json:"targetRepos,omitempty"`
	Jobs        string          `json:"jobs,omitempty"`
}

// Handler answers requests whose token is right and that Check found good. ctx ends when the caller hangs up or the job is over.
type Handler func(ctx context.Context, r Request) wire.StepResult

// errProtocol is a line that is no request.
var errProtocol = errors.New("not a request")

// readLine reads one line of at most maxLine bytes.
func readLine(r io.Reader) ([]byte, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxLine+1)).ReadBytes('\n')
	switch {
	case len(line) > maxLine:
		return nil, fmt.Errorf("%w: more than %d bytes", errProtocol, maxLine)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, fmt.Errorf("%w: the line has no end", errProtocol)
	case err != nil:
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// Decode reads a request. The error is a sentence for the person who wrote the step.
func Decode(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, fmt.Errorf("%w: %w", errProtocol, err)
	}
	return r, nil
}

// Check finds what is wrong with a request before it costs a message; nil when nothing is.
func Check(r Request) *wire.StepResult {
	switch {
	case r.RequestID == "" || len(r.RequestID) > wire.MaxRequestIDBytes || !plain(r.RequestID):
		return refuse(wire.StepInvalid, "the request id must have 1 to %d characters", wire.MaxRequestIDBytes)
	case r.Type == wire.TypeEventEmit:
		return checkEvent(r)
	case r.Type == wire.TypeJobAdd:
		return checkJobs(r)
	}
	return refuse(wire.StepUnsupported, "this agent does not know %q; is it older than the kici command of the step?", clip(r.Type))
}

func checkEvent(r Request) *wire.StepResult {
	switch {
	case r.Name == "":
		return refuse(wire.StepInvalid, "an event needs a name")
	case len(r.Name) > wire.MaxEventNameBytes:
		return refuse(wire.StepTooLarge, "the name of an event has at most %d bytes, this one %d", wire.MaxEventNameBytes, len(r.Name))
	case !plain(r.Name):
		return refuse(wire.StepInvalid, "the name of an event is text without control characters")
	case len(r.Payload) > wire.MaxEventPayloadBytes:
		return refuse(wire.StepTooLarge, "the payload has %d bytes; at most %d can be emitted, put more into an artifact and its name here",
			len(r.Payload), wire.MaxEventPayloadBytes)
	case len(r.TargetRepos) > wire.MaxTargetRepos:
		return refuse(wire.StepTooLarge, "an event can name at most %d repositories, this one names %d", wire.MaxTargetRepos, len(r.TargetRepos))
	}
	for _, repo := range r.TargetRepos {
		if repo == "" || len(repo) > wire.MaxTargetRepoBytes || !plain(repo) {
			return refuse(wire.StepInvalid, "%q is not the name of a repository", clip(repo))
		}
	}
	return nil
}

func checkJobs(r Request) *wire.StepResult {
	switch {
	case strings.TrimSpace(r.Jobs) == "":
		return refuse(wire.StepInvalid, "there are no jobs: the text is empty")
	case len(r.Jobs) > wire.MaxJobAddBytes:
		return refuse(wire.StepTooLarge, "the text has %d bytes; at most %d can be added at once", len(r.Jobs), wire.MaxJobAddBytes)
	case !utf8.ValidString(r.Jobs):
		return refuse(wire.StepInvalid, "the text is not UTF-8")
	}
	return nil
}

func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

func refuse(code, format string, args ...any) *wire.StepResult {
	return &wire.StepResult{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Refused is an answer that says no, as an answer.
func Refused(code, format string, args ...any) wire.StepResult { return *refuse(code, format, args...) }

func clip(s string) string {
	const n = 80
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
