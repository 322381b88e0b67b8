package read

import (
	"database/sql"
	"errors"
)

// window is how many rows of a list a page with filters looks at. Where it finds too few, its cursor goes on behind them: the
// cost of a page never grows with the list.
const window = 10_000

// lookAt says how far a page looks.
type lookAt struct {
	limit int
	since int64 // UTC ms; nothing older is shown
	all   bool  // without filters every row counts, so the page's own limit is enough
	floor func(from position, rows int32) (position, error)
}

// page reads a page that starts beyond from: rows gives the matching rows at or above a floor, one more than the limit.
func page[T any](l lookAt, from position, rows func(floor position) ([]T, error), pos func(T) position) ([]T, string, error) {
	floor := position{at: l.since}
	windowed := false
	if !l.all {
		f, err := l.floor(from, window)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, "", nil
		} else if err != nil {
			return nil, "", err
		}
		if f.at >= l.since {
			floor, windowed = f, true
		}
	}
	found, err := rows(floor)
	if err != nil {
		return nil, "", err
	}
	found, next := cut(found, l.limit, pos)
	if next != "" || !windowed {
		return found, next, nil
	}
	switch _, err := l.floor(floor, 1); {
	case errors.Is(err, sql.ErrNoRows):
		return found, "", nil
	case err != nil:
		return nil, "", err
	}
	return found, floor.cursor(), nil
}
