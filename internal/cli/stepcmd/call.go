// Package stepcmd is what commands do inside a step of a running job: they ask the job's own agent, not the API, and need no token.
package stepcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/wire"
)

// Inside reports whether this is a step of a running job.
func Inside(c *console.Console) bool { return stepcall.Inside(c.Getenv) }

// Flags are those of every request of a step.
type Flags struct {
	RequestID string
	Timeout   time.Duration
}

// Add declares the flags.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.RequestID, "request-id", "", "inside a step: `id` under which it happens once, however often it is asked (default random)")
	cmd.Flags().DurationVar(&f.Timeout, "timeout", 5*time.Minute, "inside a step: how long to wait for the answer, also while the server is away")
}

// Ask sends a request to the job's agent and waits for the answer. A refusal is an error that says when it may be tried again.
func Ask(ctx context.Context, c *console.Console, f Flags, r stepcall.Request) (wire.StepResult, error) {
	if r.RequestID = f.RequestID; r.RequestID == "" {
		r.RequestID = ci.NewID()
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	res, err := stepcall.Call(ctx, c.Getenv, r)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return res, fmt.Errorf("no answer within %s; it may have happened all the same: ask again with --request-id %s", f.Timeout, r.RequestID)
	case err != nil:
		return res, err
	case res.Code != "" && res.RetryAfterMs > 0:
		return res, fmt.Errorf("refused (%s): %s; try again in %s", res.Code, res.Message,
			(time.Duration(res.RetryAfterMs) * time.Millisecond).Round(time.Millisecond))
	case res.Code != "":
		return res, fmt.Errorf("refused (%s): %s", res.Code, res.Message)
	}
	return res, nil
}

// Read reads what an argument names: - is standard input, @FILE a file, anything else itself. At most limit bytes.
func Read(c *console.Console, argument string, limit int64) ([]byte, error) {
	switch {
	case argument == "-":
		return bounded(c.In, "standard input", limit)
	case len(argument) > 1 && argument[0] == '@':
		return ReadFile(argument[1:], limit)
	}
	return []byte(argument), nil
}

// ReadFile reads a file of at most limit bytes.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return bounded(f, name, limit)
}

func bounded(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, nil
}

// Payload reads the payload of an event; it must be a JSON object. "" is nothing.
func Payload(c *console.Console, argument string) (json.RawMessage, error) {
	if argument == "" {
		return nil, nil
	}
	data, err := Read(c, argument, wire.MaxEventPayloadBytes)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, console.Usage("--payload is a JSON object, @FILE or - for standard input: %w", err)
	}
	return data, nil
}
