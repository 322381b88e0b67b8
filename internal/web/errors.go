package web

import (
	"errors"
	"net/http"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/source"
)

const nothingThere = "There is no such thing, or no longer."

// problems are the errors that a page explains. An empty message is the error's own.
var problems = []struct {
	err     error
	status  int
	message string
}{
	{ingress.ErrInvalid, http.StatusBadRequest, ""},
	{read.ErrInvalid, http.StatusBadRequest, ""},
	{ingress.ErrDisabled, http.StatusConflict, "The source is disabled."},
	{ingress.ErrConflict, http.StatusConflict, ""},
	{ingress.ErrTryAgain, http.StatusConflict, ""},
	{run.ErrTerminal, http.StatusConflict, "The run has ended already."},
	{run.ErrNotTerminal, http.StatusConflict, "The run has not ended yet; only a finished run can be run again."},
	{ingress.ErrShed, http.StatusServiceUnavailable, ""},
	{source.ErrUnreachable, http.StatusServiceUnavailable, ""},
	{source.ErrDenied, http.StatusServiceUnavailable, ""},
	{source.ErrMisconfigured, http.StatusServiceUnavailable, ""},
	{read.ErrNotFound, http.StatusNotFound, nothingThere},
	{run.ErrNotFound, http.StatusNotFound, nothingThere},
	{ingress.ErrNotFound, http.StatusNotFound, nothingThere},
	{ingress.ErrNoRegistration, http.StatusNotFound, nothingThere},
	{event.ErrNotFound, http.StatusNotFound, nothingThere},
	{registration.ErrNotFound, http.StatusNotFound, nothingThere},
	{errNoSetting, http.StatusNotFound, nothingThere},
	{cluster.ErrNoInstance, http.StatusNotFound, nothingThere},
	{cluster.ErrInstanceAway, http.StatusConflict, ""},
	{cluster.ErrInvalid, http.StatusBadRequest, ""},
	{periodic.ErrUnknown, http.StatusNotFound, nothingThere},
	{periodic.ErrNotHere, http.StatusConflict, ""},
	{periodic.ErrRunning, http.StatusConflict, ""},
	{access.ErrNotFound, http.StatusNotFound, nothingThere},
	{access.ErrLastOwner, http.StatusConflict, ""},
	{access.ErrInvalid, http.StatusBadRequest, ""},
	{access.ErrForbidden, http.StatusForbidden, ""},
	{read.ErrForbidden, http.StatusForbidden, "It belongs to another routing key than your token's."},
}

// problemOf is the status and the words of an error; known is false for one that nobody expected.
func problemOf(err error) (status int, message string, known bool) {
	for _, p := range problems {
		if errors.Is(err, p.err) {
			if p.message == "" {
				return p.status, err.Error(), true
			}
			return p.status, p.message, true
		}
	}
	return http.StatusInternalServerError, "Something went wrong here; the server's log has the details.", false
}
