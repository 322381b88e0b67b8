package logs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kici-go/kici/internal/blob"
)

// open returns the step's file, ready for appending. On an error the stepLog is there all the same, without a file, so
// that the failure can be counted and waited out.
func (j *jobLog) open(step int) (*stepLog, error) {
	st := j.steps[step]
	if st == nil {
		st = &stepLog{}
		j.steps[step] = st
	}
	if st.file != nil {
		return st, nil
	}
	f, err := j.grow(stepName(step))
	if err != nil {
		return st, fmt.Errorf("open step log: %w", err)
	}
	size, err := repair(f)
	if err != nil {
		_ = f.Close()
		return st, fmt.Errorf("open step log: %w", err)
	}
	dropped := st.offset() // of a file that could not be opened until now
	st.file, st.size = f, size
	switch skew, marked := j.scanGaps(f, step, size); {
	case marked:
		st.skew = skew
	case dropped > size:
		st.skew = dropped - size
	default:
		st.skew = 0
	}
	return st, nil
}

// repair cuts a torn tail (a crash in the middle of a write) back to the last complete line. It removes nothing that was
// acknowledged: that was synced. The agent sends the rest again.
func repair(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size()
	keep := size
	for keep > 0 {
		start, err := lineStart(f, keep-1)
		if err != nil {
			return 0, err
		}
		line := make([]byte, keep-start)
		if _, err := f.ReadAt(line, start); err != nil {
			return 0, err
		}
		if line[len(line)-1] == '\n' && json.Valid(line) {
			break
		}
		keep = start
	}
	if keep < size {
		return keep, errors.Join(f.Truncate(keep), f.Sync())
	}
	return keep, nil
}

// lineStart returns where the line begins that has its last byte at offset end.
func lineStart(f io.ReaderAt, end int64) (int64, error) {
	const block = 64 << 10
	buf := make([]byte, block)
	for at := end; at > 0; {
		n := min(at, block)
		if _, err := f.ReadAt(buf[:n], at-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return at - n + int64(i) + 1, nil
		}
		at -= n
	}
	return 0, nil
}

// scanGaps finds the agent's offset in a file that holds markers of gaps: the last one names it. Only steps with a
// sentinel file have any, so an ordinary log is never read through.
func (j *jobLog) scanGaps(f io.ReaderAt, step int, size int64) (skew int64, marked bool) {
	if size == 0 || !j.folder.Has(gapName(step)) {
		return 0, false
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), chunkBytes)
	for at := int64(0); at < size; {
		line, err := r.ReadSlice('\n')
		at += int64(len(line))
		var notice struct {
			Level  string
			Offset int64
		}
		if bytes.Contains(line, []byte(`"kici"`)) && json.Unmarshal(line, &notice) == nil && notice.Level == "kici" && notice.Offset > 0 {
			skew, marked = notice.Offset-at, true
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	return skew, marked
}

// touch makes an empty durable file.
func (j *jobLog) touch(name string) error {
	f, err := j.grow(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), j.folder.Sync())
}

// grow opens a file of the job's folder. A folder that refuses is opened anew the next time, because it may have been replaced; but
// not before all is durable that was made through it.
func (j *jobLog) grow(name string) (f *os.File, err error) {
	if j.folder == nil {
		if j.folder, err = j.store.blobs.MakeFolder(dirKey(j.job)); err != nil {
			return nil, err
		}
	}
	if f, err = j.folder.Grow(name); err != nil && j.folder.Sync() == nil {
		j.folder.Close()
		j.folder = nil
	}
	return f, err
}

// load finds out what is there of the job's log.
func (j *jobLog) load() {
	folder, err := j.store.blobs.Folder(dirKey(j.job))
	if err == nil {
		j.folder = folder
		var names map[string]int64
		names, err = folder.List()
		j.total, j.truncated = sum(names)
	}
	if err != nil && !errors.Is(err, blob.ErrNotFound) {
		j.store.log.Warn("list logs", "run_id", j.job.RunID, "job_id", j.job.JobID, "err", err)
	}
	j.loaded = true
}
