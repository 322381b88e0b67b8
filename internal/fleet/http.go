package fleet

import (
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

// The refusals of the two routes.
var (
	errNoCaller = errors.New("invalid agent credentials")
	errNotYours = errors.New("the job is not this agent's")
	errQuery    = errors.New("step, offset and attempt must be whole numbers")
)

const (
	headerAgent  = "X-Kici-Agent"
	lateLogs     = 30 * time.Second // after its end a job's last lines are still taken (AG-19)
	stalledAfter = 30 * time.Second // a body that stops coming
)

// caller returns the agent that a request is from: it names itself and has that agent's token.
func (f *Fleet) caller(r *http.Request) (string, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	id := r.Header.Get(headerAgent)
	if !ok || id == "" {
		return "", errNoCaller
	}
	hash := hashToken(token)
	if s := f.session(id); s != nil && subtle.ConstantTimeCompare([]byte(s.tokenHash), []byte(hash)) == 1 {
		return id, nil // its connection here would have ended with its token
	}
	row, err := f.Store.Read().FleetCaller(r.Context(), id, text(hash))
	if errors.Is(err, sql.ErrNoRows) || (err == nil && row.State == "gone") {
		return "", errNoCaller
	}
	return row.ID, err
}

// appendLog takes a piece of a step's log (PathLog).
func (f *Fleet) appendLog(w http.ResponseWriter, r *http.Request) {
	agentID, err := f.caller(r)
	if err != nil {
		f.fail(w, r, err)
		return
	}
	pos, err := position(r)
	if err != nil {
		f.fail(w, r, err)
		return
	}
	a, err := f.Store.Read().FleetAssignment(r.Context(), pos.JobID, int64(pos.Attempt))
	if err == nil && !f.mayLog(a, agentID) {
		err = errNotYours
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotYours
	}
	if err != nil {
		f.fail(w, r, err)
		return
	}
	pos.RunID = a.RunID
	body := http.MaxBytesReader(w, r.Body, wire.MaxLogChunkBytes)
	ack, err := f.Logs.Append(r.Context(), pos, &stallReader{r: body, control: http.NewResponseController(w)})
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, ack)
	case errors.Is(err, ErrLogOffset):
		writeJSON(w, http.StatusConflict, ack)
	case errors.As(err, &tooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, "the request is larger than 4 MiB")
	default:
		f.fail(w, r, err)
	}
}

func (f *Fleet) mayLog(a db.FleetAssignmentRow, agentID string) bool {
	return a.AgentID == agentID && (!a.EndedAt.Valid || f.Env.NowMs()-a.EndedAt.Int64 <= lateLogs.Milliseconds())
}

func position(r *http.Request) (LogPosition, error) {
	q := r.URL.Query()
	step, err1 := strconv.Atoi(q.Get("step"))
	attempt, err2 := strconv.Atoi(q.Get("attempt"))
	offset, err3 := strconv.ParseInt(q.Get("offset"), 10, 64)
	if errors.Join(err1, err2, err3) != nil || step < 0 || attempt < 1 || offset < 0 {
		return LogPosition{}, errQuery
	}
	return LogPosition{JobID: r.PathValue("job"), Attempt: attempt, Step: step, Offset: offset}, nil
}

// stallReader lets a body take as long as it keeps coming.
type stallReader struct {
	r       io.Reader
	control *http.ResponseController
}

func (s *stallReader) Read(p []byte) (int, error) {
	_ = s.control.SetReadDeadline(time.Now().Add(stalledAfter))
	return s.r.Read(p)
}

// fail answers with the status that an error stands for.
func (f *Fleet) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errNoCaller):
		writeError(w, http.StatusUnauthorized, err.Error())
	case errors.Is(err, errNotYours):
		writeError(w, http.StatusGone, err.Error())
	case errors.Is(err, errQuery), errors.Is(err, ErrLogInvalid):
		writeError(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, ErrLogUnavailable):
		w.Header().Set("Retry-After", "2")
		writeError(w, http.StatusServiceUnavailable, ErrLogUnavailable.Error())
	case r.Context().Err() != nil:
		// The agent has hung up.
	default:
		f.Log.ErrorContext(r.Context(), "agent request", "path", r.URL.Path, "err", err)
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, "the server cannot answer just now")
	}
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"error": message})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
