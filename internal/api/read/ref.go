package read

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/store/db"
)

// RunID finds the run that ref names: a full id, a unique beginning of one (8 characters or more), repo#482, or #482
// or 482 when one repository only has that number.
func (r *Reads) RunID(ctx context.Context, s Scope, ref string) (string, error) {
	var id string
	err := r.view(ctx, func(q *db.Queries) error {
		var err error
		id, err = runID(ctx, q, s, ref)
		return err
	})
	return id, err
}

func runID(ctx context.Context, q *db.Queries, s Scope, ref string) (string, error) {
	ref = strings.TrimSpace(ref)
	repo, num, hash := cutLast(ref, "#")
	if !hash {
		repo, num = "", ref
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil && n > 0 && (hash || len(num) < 8) {
		if repo != "" {
			id, err := q.ReadRunIDByNumber(ctx, s.OrgID, repo, n)
			return id, notFound(err, fmt.Sprintf("run %s#%d", repo, n))
		}
		return runByNumber(ctx, q, s, n)
	}
	low, high, err := idRange(ref)
	if err != nil {
		return "", fmt.Errorf("run %q %w: give its id, the first 8 characters of it, or repository#number", ref, ErrNotFound)
	}
	ids, err := q.ReadRunIDsByPrefix(ctx, low, high, s.OrgID)
	return only(ids, err, "run", ref)
}

func runByNumber(ctx context.Context, q *db.Queries, s Scope, n int64) (string, error) {
	rows, err := q.ReadRunReposByNumber(ctx, s.OrgID, n)
	switch {
	case err != nil:
		return "", err
	case len(rows) == 0:
		return "", fmt.Errorf("run #%d %w", n, ErrNotFound)
	case len(rows) > 1:
		names := make([]string, len(rows))
		for i, x := range rows {
			names[i] = fmt.Sprintf("%s#%d", x.Repo, n)
		}
		return "", fmt.Errorf("%w: several repositories have a run #%d; say which: %s", ErrInvalid, n, strings.Join(names, ", "))
	}
	return rows[0].ID, nil
}

// idRange is the range of ids that begin with prefix: [low, high).
func idRange(prefix string) (low, high string, err error) {
	prefix = strings.ToLower(prefix)
	if len(prefix) < 8 || len(prefix) > 36 || strings.Trim(prefix, "0123456789abcdef-") != "" {
		return "", "", ErrNotFound
	}
	return prefix, prefix + "g", nil
}

func only(ids []string, err error, what, ref string) (string, error) {
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", fmt.Errorf("%s %q %w", what, ref, ErrNotFound)
	case len(ids) > 1:
		return "", fmt.Errorf("%w: more than one %s begins with %q; give more of the id", ErrInvalid, what, ref)
	}
	return ids[0], nil
}

// recentRuns is how far back a bare job name is looked for.
const recentRuns = 200

// jobID finds the job that ref names: an id, a unique beginning of one, <run>/<job name> such as acme/shop#482/build, or the bare
// name of a job, which means the one of the newest run that has it.
func jobID(ctx context.Context, q *db.Queries, s Scope, ref string) (string, error) {
	ref = strings.TrimSpace(ref)
	if run, name, ok := splitJobRef(ref); ok {
		id, err := runID(ctx, q, s, run)
		if err != nil {
			return "", err
		}
		job, err := q.ReadJobIDByName(ctx, id, name)
		return job, notFound(err, fmt.Sprintf("job %q of run %s", name, run))
	}
	low, high, err := idRange(ref)
	if err != nil {
		return recentJob(ctx, q, s, ref)
	}
	ids, err := q.ReadJobIDsByPrefix(ctx, low, high, s.OrgID)
	return only(ids, err, "job", ref)
}

func recentJob(ctx context.Context, q *db.Queries, s Scope, name string) (string, error) {
	id, err := q.ReadRecentJobIDByName(ctx, db.ReadRecentJobIDByNameParams{Name: name, OrgID: s.OrgID, RoutingKey: s.RoutingKey, Recent: recentRuns})
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("job %q %w: give its name, its id, or run/job such as acme/shop#482/build", name, ErrNotFound)
	}
	return id, err
}

// splitJobRef cuts after the run: with a '#', at the first slash after it; else at the first slash.
func splitJobRef(ref string) (run, job string, ok bool) {
	from := max(strings.Index(ref, "#"), 0)
	i := strings.Index(ref[from:], "/")
	if i < 0 {
		return "", "", false
	}
	return ref[:from+i], ref[from+i+1:], true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
