package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
)

// failure is the body of every error (D22).
type failure struct {
	Message string   `json:"error" doc:"A sentence for people"`
	Details []string `json:"details,omitempty"`
	status  int
}

// Error implements error.
func (f *failure) Error() string { return f.Message }

// GetStatus implements huma.StatusError.
func (f *failure) GetStatus() int { return f.status }

// newError is huma's error constructor. The values that were sent are never repeated: they may be secrets.
func newError(status int, msg string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	f := &failure{Message: msg, status: status}
	for _, err := range errs {
		var d huma.ErrorDetailer
		switch {
		case err == nil:
		case errors.As(err, &d):
			f.Details = append(f.Details, detail(d.ErrorDetail()))
		default:
			f.Details = append(f.Details, err.Error())
		}
	}
	return f
}

func detail(d *huma.ErrorDetail) string {
	if d.Location == "" {
		return d.Message
	}
	return d.Location + ": " + d.Message
}

// statuses is the one table from errors to HTTP.
var statuses = []struct {
	err    error
	status int
}{
	{read.ErrInvalid, http.StatusBadRequest},
	{read.ErrNotFound, http.StatusNotFound},
	{read.ErrForbidden, http.StatusForbidden},
	{run.ErrNotFound, http.StatusNotFound},
	{run.ErrScope, http.StatusForbidden},
	{run.ErrTerminal, http.StatusConflict},
	{run.ErrNotTerminal, http.StatusConflict},
	{run.ErrNotRerunnable, http.StatusConflict},
	{ingress.ErrNotFound, http.StatusNotFound},
	{ingress.ErrInvalid, http.StatusBadRequest},
	{ingress.ErrNoCommit, http.StatusNotFound},
	{ingress.ErrDisabled, http.StatusConflict},
	{ingress.ErrNoRegistration, http.StatusNotFound},
	{ingress.ErrConflict, http.StatusConflict},
	{ingress.ErrExists, http.StatusConflict},
	{ingress.ErrTryAgain, http.StatusConflict},
	{ingress.ErrShed, http.StatusServiceUnavailable},
	{registration.ErrNotFound, http.StatusNotFound},
	{source.ErrUnreachable, http.StatusServiceUnavailable},
	{source.ErrNotFound, http.StatusNotFound},
	{source.ErrMisconfigured, http.StatusConflict},
	{source.ErrDenied, http.StatusConflict},
	{access.ErrUnauthenticated, http.StatusUnauthorized},
	{access.ErrUnavailable, http.StatusServiceUnavailable},
	{access.ErrRateLimited, http.StatusTooManyRequests},
	{access.ErrForbidden, http.StatusForbidden},
	{access.ErrLastOwner, http.StatusConflict},
	{access.ErrNotFound, http.StatusNotFound},
	{access.ErrInvalid, http.StatusBadRequest},
	{access.ErrOrgIs, http.StatusConflict},
	{periodic.ErrUnknown, http.StatusBadRequest},
	{periodic.ErrNotHere, http.StatusNotFound},
	{periodic.ErrRunning, http.StatusConflict},
	{cluster.ErrInvalid, http.StatusBadRequest},
	{cluster.ErrUnnamed, http.StatusServiceUnavailable},
	{cluster.ErrNoInstance, http.StatusNotFound},
	{cluster.ErrInstanceAway, http.StatusConflict},
	{secret.ErrNotFound, http.StatusNotFound},
	{secret.ErrInvalid, http.StatusBadRequest},
	{secret.ErrReserved, http.StatusBadRequest},
	{store.ErrFull, http.StatusServiceUnavailable},
	{store.ErrReadOnly, http.StatusServiceUnavailable},
	{store.ErrBusy, http.StatusServiceUnavailable},
	{store.ErrClosed, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
}

// badRequest is an error of the caller's.
func badRequest(format string, args ...any) error {
	return &failure{Message: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
}

// statusOf is the HTTP status of an error; 500 for those that are ours.
func statusOf(err error) int {
	var se huma.StatusError
	if errors.As(err, &se) {
		return se.GetStatus()
	}
	var inv *setting.Invalid
	if errors.As(err, &inv) {
		return http.StatusBadRequest
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	if store.IsUnique(err) {
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// failureOf is what the caller is told. Errors of ours are logged by the route and not shown.
func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	status := statusOf(err)
	var re *ingress.RequestError
	var inv *setting.Invalid
	switch {
	case errors.As(err, &inv):
		return &failure{Message: inv.Problems[0], Details: inv.Problems[1:], status: http.StatusBadRequest}
	case errors.As(err, &re):
		return &failure{Message: re.Message, Details: re.Details, status: status}
	case status == http.StatusInternalServerError:
		return &failure{Message: "something went wrong in the server; its log has the details", status: status}
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrReadOnly), errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrClosed):
		return &failure{Message: "the server cannot use its database just now; try again", status: status}
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{Message: "the server took too long; try again", status: status}
	case errors.Is(err, access.ErrUnavailable):
		return &failure{Message: "Authentication unavailable", status: status}
	}
	return &failure{Message: err.Error(), status: status}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}

func writeFailure(w http.ResponseWriter, f *failure) {
	writeJSON(w, f.status, client.Error{Message: f.Message, Details: f.Details})
}
