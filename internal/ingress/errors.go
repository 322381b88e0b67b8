package ingress

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("no such source")
	// ErrNoRegistration is returned for a registration that does not exist or belongs to another organisation.
	ErrNoRegistration = errors.New("no such registration")
	ErrInvalid        = errors.New("invalid request") // every RequestError
	ErrDisabled       = errors.New("the source is disabled")
	ErrExists         = errors.New("a source of that name exists")
	ErrShed           = errors.New("too many deliveries are waiting; try again later")
	ErrNoCommit       = errors.New("the commit is not in the repository")
	ErrTryAgain       = errors.New("somebody else changed it at the same time; try again")
	ErrConflict       = errors.New("not possible now") // every conflict
	errLostClaim      = errors.New("another worker has the delivery")
	errStale          = errors.New("the registrations changed meanwhile")
	errRepeated       = errors.New("the same request was here before")
)

// RequestError is a request that the caller must change. It is ErrInvalid.
type RequestError struct {
	Message string
	Details []string // one sentence each
}

// Error implements error.
func (e *RequestError) Error() string {
	if len(e.Details) == 0 {
		return e.Message
	}
	return e.Message + ": " + strings.Join(e.Details, "; ")
}

// Is makes it ErrInvalid.
func (e *RequestError) Is(target error) bool { return target == ErrInvalid }

func invalid(format string, args ...any) error {
	return &RequestError{Message: fmt.Sprintf(format, args...)}
}

// notNow is a request that is right and cannot be done as things stand. It is ErrConflict.
type notNow string

// Error implements error.
func (e notNow) Error() string { return string(e) }

// Is makes it ErrConflict.
func (e notNow) Is(target error) bool { return target == ErrConflict }

func conflict(format string, args ...any) error { return notNow(fmt.Sprintf(format, args...)) }

// invalidAll makes a RequestError of joined errors, however deeply they are joined.
func invalidAll(message string, err error) error {
	return &RequestError{Message: message, Details: flatten(err, nil)}
}

func flatten(err error, into []string) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only what errors.Join made, not what wraps it
		for _, one := range joined.Unwrap() {
			into = flatten(one, into)
		}
		return into
	}
	return append(into, err.Error())
}
