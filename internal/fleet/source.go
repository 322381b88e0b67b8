package fleet

import (
	"errors"
	"net/http"
	"time"
)

// Bounds of the archives that agents ask for.
const (
	archivesAtOnce = 4
	archiveTimeout = 20 * time.Minute
)

// jobSource answers the holder of a job's open assignment with the files of the job's commit (PathSource). An answer that cannot be
// finished is cut off, so that nobody takes a part for the whole.
func (f *Fleet) jobSource(w http.ResponseWriter, r *http.Request) {
	row, err := f.heldJob(r)
	if err == nil && row.Sha == "" {
		err = errNotYours
	}
	if err != nil {
		f.fail(w, r, err)
		return
	}
	ctx := r.Context()
	select {
	case f.archives <- struct{}{}:
		defer func() { <-f.archives }()
	case <-ctx.Done():
		return
	}
	clone, err := f.Clones.CloneFor(ctx, row.OrgID, row.RoutingKey)
	if err != nil {
		f.fail(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(f.Env.Now().Add(archiveTimeout)) // not every writer has one
	out := &begunWriter{w: w}
	err = f.Archive(ctx, clone, row.Sha, row.Ref, out)
	switch {
	case err == nil:
	case ctx.Err() != nil:
	case out.begun:
		f.Log.Error("send the files of a job", "job_id", row.ID, "err", err)
		panic(http.ErrAbortHandler)
	default:
		f.Log.Error("read the files of a job", "job_id", row.ID, "err", err)
		http.Error(w, errors.Join(errNoSource, err).Error(), http.StatusBadGateway)
	}
}

var errNoSource = errors.New("the server could not read the repository")

// begunWriter notes that something was written.
type begunWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (b *begunWriter) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", "application/x-tar")
		b.w.Header().Set("Cache-Control", "no-store")
	}
	return b.w.Write(p)
}
