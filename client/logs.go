package client

import (
	"context"
	"net/url"
	"strconv"
)

// LogSearch says what to look for.
type LogSearch struct {
	Text   string
	Cursor string
	Limit  int
}

// LogMatches is the lines of a step's log that contain a text. A search ends after a number of matches and a time; it goes on at
// NextCursor until it is complete, and, while the log grows, after that.
type LogMatches struct {
	Lines      []LogLine `json:"lines"`
	NextCursor string    `json:"nextCursor"`
	Searched   int64     `json:"searched"` // lines before NextCursor
	Complete   bool      `json:"complete"` // all lines that are there were searched
}

// SearchLog finds the lines of a step's log that contain a text (1 to 200 bytes), whatever its case, from cursor on ("" is the
// start). limit 0 is 50, more than 200 is 200. To find all, go on at NextCursor until Complete; an answer may have no match and not
// be complete.
func (c *Client) SearchLog(ctx context.Context, run, job string, step int, q LogSearch) (out LogMatches, err error) {
	v := url.Values{"q": {q.Text}}
	page(v, q.Cursor, q.Limit)
	return out, c.get(ctx, runPath(run)+"/jobs/"+url.PathEscape(job)+"/steps/"+strconv.Itoa(step)+"/logs/search", v, &out)
}
