package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/wire"
)

// appender carries one request. It reads without holding the job's turn, so that a stalled client blocks nobody, and
// takes the turn for each write.
type appender struct {
	store  *Store
	job    Job
	step   int
	next   int64 // offset of the first byte that was not handed to the log
	stored int64
}

// copy hands whole lines on, a buffer at a time.
func (a *appender) copy(ctx context.Context, r io.Reader) error {
	buf := a.store.buffers.Get().(*[]byte)
	defer a.store.buffers.Put(buf)
	held := 0
	for {
		n, err := io.ReadAtLeast(r, (*buf)[held:], 1)
		held += n
		full := held == len(*buf)
		if err == nil && !full && !bytes.Contains((*buf)[held-n:held], newline) {
			continue
		}
		if lines := bytes.LastIndexByte((*buf)[:held], '\n') + 1; lines > 0 {
			if werr := a.write(ctx, (*buf)[:lines]); werr != nil {
				return werr
			}
			held = copy(*buf, (*buf)[lines:held])
		} else if full {
			return ErrLine
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("read log lines: %w", err)
		}
	}
}

var newline = []byte{'\n'}

func (a *appender) write(ctx context.Context, lines []byte) error {
	j, err := a.store.acquire(ctx, a.job)
	if err != nil {
		return err
	}
	defer j.release()
	n, err := j.write(a.step, a.next, lines)
	a.stored += n
	if err == nil {
		a.next += int64(len(lines))
	}
	return err
}

func (a *appender) sync(ctx context.Context) (wire.LogAck, error) {
	j, err := a.store.acquire(ctx, a.job)
	if err != nil {
		return wire.LogAck{}, err
	}
	defer j.release()
	if j.truncated {
		return wire.LogAck{Offset: a.next, Truncated: true}, nil
	}
	at, err := j.sync(a.step)
	if err == nil && a.next > at {
		err = ErrOffset
	}
	return wire.LogAck{Offset: at}, err
}

// jobLog is the log of one attempt of a job. Whoever holds turn owns all of it but used, which belongs to Store.mu.
type jobLog struct {
	store *Store
	job   Job
	turn  chan struct{}
	used  time.Time

	retired   bool // no longer in Store.jobs; look it up anew
	loaded    bool
	total     int64
	truncated bool
	folder    *blob.Folder // nil until it is there and needed
	steps     map[int]*stepLog
}

// stepLog is one open file. The agent's offset of the next byte is size + skew: markers that kici wrote are in the file
// but not in the agent's stream, dropped bytes are in the stream but not in the file.
type stepLog struct {
	file         *os.File // nil while it cannot be opened
	size, synced int64
	skew         int64
	gap          int64 // dropped and not marked yet
	failedSince  time.Time
}

func (st *stepLog) offset() int64 { return st.size + st.skew }

func (j *jobLog) release() { <-j.turn }

func (j *jobLog) retire() {
	j.turn <- struct{}{}
	j.close()
	j.release()
}

// size is what the job has stored, if nobody is at work on it just now.
func (j *jobLog) size() (total int64, known bool) {
	select {
	case j.turn <- struct{}{}:
		defer j.release()
		return j.total, j.loaded && !j.retired && !j.truncated
	default:
		return 0, false
	}
}

func (j *jobLog) close() {
	j.retired = true
	for _, st := range j.steps {
		if st.gap > 0 {
			j.store.log.Warn("log ends with a gap that could not be marked", "run_id", j.job.RunID, "job_id", j.job.JobID, "bytes", st.gap)
		}
		if st.file != nil {
			_ = st.file.Close()
		}
	}
	j.steps = nil
	if j.folder == nil {
		return
	}
	if err := j.folder.Sync(); err != nil { // nobody knows what is not durable when the folder is opened again
		j.store.log.Warn("sync folders of log", "run_id", j.job.RunID, "job_id", j.job.JobID, "err", err)
	}
	j.folder.Close()
	j.folder = nil
}

// write adds lines that stand at offset and returns how many bytes were new.
func (j *jobLog) write(step int, offset int64, lines []byte) (int64, error) {
	if j.truncated {
		j.markTruncated(step)
		return 0, nil
	}
	st, err := j.open(step)
	if err != nil {
		return 0, j.refused(step, st, offset, lines, err)
	}
	if offset > st.offset() {
		return 0, ErrOffset
	}
	lines = lines[min(int64(len(lines)), st.offset()-offset):]
	if len(lines) == 0 {
		return 0, nil
	}
	fitting := j.fitting(lines)
	if err := j.put(step, st, fitting); err != nil {
		return 0, j.refused(step, st, st.offset(), lines, err)
	}
	if len(fitting) < len(lines) {
		return int64(len(fitting)), j.truncate(step)
	}
	return int64(len(lines)), nil
}

// fitting is the part of lines, in whole lines, that the job may still store.
func (j *jobLog) fitting(lines []byte) []byte {
	room := j.store.max - j.total
	if int64(len(lines)) <= room {
		return lines
	}
	return lines[:bytes.LastIndexByte(lines[:max(room, 0)], '\n')+1]
}

// put writes lines at the end of the file, after the marker of a gap when there is one.
func (j *jobLog) put(step int, st *stepLog, lines []byte) error {
	marker := 0
	if st.gap > 0 {
		if err := j.touch(gapName(step)); err != nil {
			return err
		}
		text := fmt.Sprintf("%s of this log are missing here: the server's log storage refused them", humanize.IBytes(uint64(st.gap)))
		line := j.store.notice(text, st.offset())
		marker, lines = len(line), append(line, lines...)
	}
	if err := st.put(lines); err != nil {
		return err
	}
	st.skew -= int64(marker)
	j.total += int64(len(lines))
	st.gap, st.failedSince = 0, time.Time{}
	return nil
}

func (st *stepLog) put(lines []byte) error {
	if _, err := st.file.WriteAt(lines, st.size); err != nil {
		return errors.Join(err, st.file.Truncate(st.size))
	}
	st.size += int64(len(lines))
	return nil
}

// refused decides what becomes of lines that the storage did not take: the agent keeps them for a while, then they are
// dropped and counted.
func (j *jobLog) refused(step int, st *stepLog, offset int64, lines []byte, cause error) error {
	now := j.store.now()
	j.store.metrics.LogFailures.Inc()
	if st.failedSince.IsZero() {
		st.failedSince = now
		j.store.log.Error("log storage refuses writes", "run_id", j.job.RunID, "job_id", j.job.JobID, "step", step, "err", cause)
	}
	if now.Sub(st.failedSince) < patience {
		return fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	if offset > st.offset() {
		return ErrOffset
	}
	n := max(0, int64(len(lines))-(st.offset()-offset))
	st.skew += n
	st.gap += n
	j.store.metrics.LogDropped.Add(float64(n))
	return nil
}

// truncate ends the job's log at its bound. The sentinel makes that survive a restart.
func (j *jobLog) truncate(step int) error {
	if err := j.touch(truncatedName); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	j.truncated = true
	j.writeNotice(step)
	return nil
}

// markTruncated leaves the notice in a step that has nothing else.
func (j *jobLog) markTruncated(step int) {
	if st, _ := j.open(step); st.file != nil && st.size == 0 {
		j.writeNotice(step)
	}
}

// writeNotice tries to say in the log why it ends. The bound bites all the same; the notice is a courtesy.
func (j *jobLog) writeNotice(step int) {
	st, _ := j.open(step)
	if st.file == nil {
		return
	}
	text := fmt.Sprintf("the log of this job reached its bound of %s; the rest is not stored", humanize.IBytes(uint64(j.store.max)))
	if err := st.put(j.store.notice(text, 0)); err == nil {
		_ = st.file.Sync()
	}
}

// sync makes the step's file durable and returns the agent's offset.
func (j *jobLog) sync(step int) (int64, error) {
	st, _ := j.open(step) // one that cannot be opened has nothing to lose; write has told
	if st.file == nil || st.synced == st.size {
		return st.offset(), nil
	}
	err := st.file.Sync()
	if err == nil && j.folder != nil {
		err = j.folder.Sync()
	}
	if err != nil {
		// The kernel may have dropped the pages: look at the file again before saying what is there.
		j.store.metrics.LogFailures.Inc()
		_ = st.file.Close()
		delete(j.steps, step)
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	st.synced = st.size
	return st.offset(), nil
}

// notice is a line of kici's own. offset, when above zero, is the agent's offset behind the line (see scanGaps).
func (s *Store) notice(text string, offset int64) []byte {
	line := struct {
		wire.LogLine
		Offset int64 `json:"offset,omitempty"`
	}{wire.LogLine{TS: s.now().UnixMilli(), Level: "kici", Msg: text}, offset}
	b, _ := json.Marshal(line)
	return append(b, '\n')
}
