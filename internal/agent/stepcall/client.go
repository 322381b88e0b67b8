package stepcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/kici-go/kici/internal/wire"
)

// ErrOutside says that the caller is not a step of a job.
var ErrOutside = errors.New("this is not a step of a running job: " + SocketVariable + " is not set")

// Inside reports whether getenv is a step's environment.
func Inside(getenv func(string) string) bool { return getenv(SocketVariable) != "" }

// Call asks the agent of the job that getenv's environment belongs to, and waits for the answer until ctx ends. An error means that
// it is not known whether it was done: the same request may be made again.
func Call(ctx context.Context, getenv func(string) string, r Request) (wire.StepResult, error) {
	socket := getenv(SocketVariable)
	if socket == "" {
		return wire.StepResult{}, ErrOutside
	}
	r.Token = getenv(TokenVariable)
	if bad := Check(r); bad != nil {
		return *bad, nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return wire.StepResult{}, fmt.Errorf("encode the request: %w", err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return Refused(wire.StepEnded, "the job of this step has ended"), nil
		}
		return wire.StepResult{}, fmt.Errorf("reach the agent: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return wire.StepResult{}, fmt.Errorf("ask the agent: %w", err)
	}
	answer, err := readLine(conn)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return wire.StepResult{}, fmt.Errorf("no answer from the agent: %w", err)
	}
	var res wire.StepResult
	if err := json.Unmarshal(answer, &res); err != nil {
		return wire.StepResult{}, fmt.Errorf("read the agent's answer: %w", err)
	}
	return res, nil
}
