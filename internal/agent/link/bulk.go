package link

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/wire"
)

// ErrNotOurs means that the orchestrator does not consider the job this agent's (any more).
var ErrNotOurs = errors.New("the job is not this agent's")

// ErrDigest means that the description is not the one that was dispatched.
var ErrDigest = errors.New("the job's description does not match its digest")

// FetchJob gets a dispatched job's description and checks its digest.
func (l *Link) FetchJob(ctx context.Context, d wire.JobDispatch) (wire.JobSpec, error) {
	var spec wire.JobSpec
	resp, err := l.do(ctx, http.MethodGet, strings.ReplaceAll(wire.PathJob, "{job}", url.PathEscape(d.JobID)), nil)
	if err != nil {
		return spec, err
	}
	defer drain(resp)
	if err := status(resp); err != nil {
		return spec, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxJobSpecBytes+1))
	if err != nil {
		return spec, fmt.Errorf("fetch job: %w", err)
	}
	if len(data) > wire.MaxJobSpecBytes {
		return spec, fmt.Errorf("fetch job: the description is larger than %d bytes", wire.MaxJobSpecBytes)
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return spec, fmt.Errorf("fetch job: %w", err)
	}
	switch sum := sha256.Sum256(spec.Job); {
	case spec.JobID != d.JobID:
		return spec, fmt.Errorf("fetch job: got %q: %w", spec.JobID, ErrNotOurs)
	case spec.Attempt != d.Attempt:
		return spec, fmt.Errorf("fetch job: got attempt %d: %w", spec.Attempt, ErrNotOurs)
	case d.Digest != "" && hex.EncodeToString(sum[:]) != d.Digest:
		return spec, ErrDigest
	}
	return spec, nil
}

// FetchSource gets the files of a job's commit as a tar; the caller closes it. A part that was cut off ends in an error.
func (l *Link) FetchSource(ctx context.Context, jobID string) (io.ReadCloser, error) {
	resp, err := l.do(ctx, http.MethodGet, strings.ReplaceAll(wire.PathSource, "{job}", url.PathEscape(jobID)), nil)
	if err != nil {
		return nil, err
	}
	if err := status(resp); err != nil {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
	}
	return resp.Body, nil
}

// PostLog returns the function by which a spool sends a job's log.
func (l *Link) PostLog(jobID string, attempt int) spool.Post {
	path := strings.ReplaceAll(wire.PathLog, "{job}", url.PathEscape(jobID))
	return func(ctx context.Context, c spool.Chunk) (ack wire.LogAck, err error) {
		q := url.Values{
			"step": {strconv.Itoa(c.Step)}, "offset": {strconv.FormatInt(c.Offset, 10)}, "attempt": {strconv.Itoa(attempt)},
		}
		resp, err := l.do(ctx, http.MethodPost, path+"?"+q.Encode(), c.Body)
		if err != nil {
			return ack, err
		}
		defer drain(resp)
		err = status(resp)
		if errors.Is(err, ErrNotOurs) {
			return ack, fmt.Errorf("%w: %w", spool.ErrGone, err)
		}
		if err != nil && resp.StatusCode != http.StatusConflict {
			return ack, err
		}
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&ack); err != nil {
			return ack, fmt.Errorf("post log: %w", err)
		}
		if resp.StatusCode == http.StatusConflict && !ack.Truncated {
			return ack, spool.OffsetError{Offset: ack.Offset}
		}
		return ack, nil
	}
}

const maxAnswer = 64 << 10

func (l *Link) do(ctx context.Context, method, path string, body *io.SectionReader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Body = io.NopCloser(body)
		req.ContentLength = body.Size()
		req.GetBody = func() (io.ReadCloser, error) { // the transport may repeat it on a fresh connection
			return io.NopCloser(io.NewSectionReader(body, 0, body.Size())), nil
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	req.Header.Set("Authorization", "Bearer "+l.cfg.Token)
	req.Header.Set("X-Kici-Agent", l.cfg.AgentID)
	req.Header.Set("User-Agent", "kici-agent/"+l.cfg.Version)
	return l.cfg.HTTP.Do(req)
}

// drain lets the connection be used again.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
}

func status(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%s %s: %s: %w", resp.Request.Method, resp.Request.URL.Path, resp.Status, ErrNotOurs)
	}
	return fmt.Errorf("%s %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
}
