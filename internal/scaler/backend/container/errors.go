package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
)

// Words of engines by which their errors are told apart: an answer's status alone says too little.
var (
	wordsFull     = []string{"no space left on device", "disk quota exceeded", "input/output error", "read-only file system"}
	wordsCapacity = []string{"cannot allocate memory", "resource temporarily unavailable", "too many open files", "no available ipv4 addresses", "could not find free ip", "failed to find free"}
	wordsAway     = []string{"connection refused", "connection reset", "broken pipe", "no such host", "i/o timeout", "server is shutting down", "closed network connection"}
)

func says(err error, words []string) bool {
	text := strings.ToLower(err.Error())
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// hostError tells what policy needs to know of an engine's error while an agent was started. other is what it is when nothing is known.
func hostError(err, other error) error {
	var network net.Error
	kind := other
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case says(err, wordsFull):
		kind = backend.ErrInfra
	case says(err, wordsCapacity):
		kind = backend.ErrNoCapacity
	case engineapi.IsAway(err), errors.As(err, &network), engineapi.IsStatus(err, http.StatusServiceUnavailable), says(err, wordsAway):
		kind = backend.ErrNotReady
	case engineapi.IsStatus(err, http.StatusBadRequest, http.StatusForbidden, http.StatusUnauthorized):
		kind = backend.ErrRefused
	}
	return fmt.Errorf("%w: %s", kind, sentence(err))
}

// onDisk says which disk is full: an engine names a file, which may be one of an image. folder is the engine's, ” when it is not known.
func onDisk(err error, folder string) error {
	if err == nil || folder == "" || !says(err, wordsFull[:2]) {
		return err
	}
	return fmt.Errorf("%w (the engine's disk is that of %s)", err, folder)
}

// missing reports whether a container is not there. Podman has an answer of its own for one that goes while it is looked at.
func missing(err error) bool {
	return engineapi.IsStatus(err, http.StatusNotFound) || err != nil && strings.Contains(err.Error(), "no such container")
}

// sentence takes the engine's own preamble off.
func sentence(err error) string {
	text := err.Error()
	for _, p := range []string{"Error response from daemon: ", "container create: ", "failed to create task for container: ", "failed to create shim task: "} {
		text = strings.TrimPrefix(text, p)
	}
	return text
}

// invisible reports whether a container could not be made because the engine does not see a file of this process.
func invisible(err error, path string) bool {
	text := err.Error()
	return path != "" && strings.Contains(text, path) && (strings.Contains(text, "does not exist") || strings.Contains(text, "no such file"))
}

// pullError tells what policy needs to know of a pull that failed (CT-10): that an image is not there, or not for us, will be so again.
func pullError(err error, image string) error {
	refused := []string{
		"not found", "manifest unknown", "does not exist", "access denied", "access to the resource is denied", "unauthorized", "no basic auth credentials", "authentication required",
		"no matching manifest", "invalid reference", "name unknown", "requested access", "forbidden",
	}
	kind := backend.ErrInfra
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case says(err, wordsFull), says(err, wordsAway):
	case engineapi.IsStatus(err, http.StatusNotFound, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden), says(err, refused):
		kind = backend.ErrRefused
	}
	return fmt.Errorf("%w: pull image %s: %s", kind, image, sentence(err))
}
