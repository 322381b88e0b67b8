//go:build !linux

package hostnet

import (
	"context"
	"errors"
)

// Net is there on Linux only.
type Net struct{}

var errLinux = errors.New("isolating the network of agents needs Linux")

// Open returns an error.
func Open(Options) (*Net, error) { return nil, errLinux }

// Check returns an error.
func (*Net) Check(context.Context) (Support, error) { return Support{}, errLinux }

// Ensure returns an error.
func (*Net) Ensure(context.Context, Bridge) error { return errLinux }

// Apply returns an error.
func (*Net) Apply(context.Context, Bridge, Rules) error { return errLinux }

// Sync returns an error.
func (*Net) Sync(context.Context, Bridge, []Rules) ([]Agent, error) { return nil, errLinux }

// Remove returns an error.
func (*Net) Remove(context.Context, ...Agent) error { return errLinux }

// List returns an error.
func (*Net) List(context.Context) ([]Agent, error) { return nil, errLinux }

// Refused returns an error.
func (*Net) Refused(context.Context, string) (Refused, error) { return Refused{}, errLinux }

// Agent returns nothing.
func (*Net) Agent(Bridge, Rules) Agent { return Agent{} }

// Port returns an error.
func (*Net) Port(context.Context, string, int) (string, error) { return "", errLinux }

// Close does nothing.
func (*Net) Close() error { return nil }
