package spool

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/wire"
)

// partialDelay is how long an unfinished line waits for its end before it is shown, so that prompts appear.
const partialDelay = time.Second

// Stream turns bytes into lines of one level. Writes never fail: what cannot be kept is counted or marked in the log.
type Stream struct {
	step  *Step
	level string

	// Guarded by step.mu.
	line   []byte // the unfinished line
	cont   bool   // the last part ended in wire.LogContinues
	enc    []byte
	frame  []byte // what every line of the same millisecond begins with
	at     int64
	timer  *time.Timer
	closed bool
}

// Stream returns a new stream: stdout, stderr or kici.
func (st *Step) Stream(level string) *Stream { return &Stream{step: st, level: level} }

// Write takes any piece of output. Lines longer than wire.MaxLogLineBytes are split.
func (w *Stream) Write(p []byte) (int, error) {
	n := len(p)
	if n == 0 {
		return 0, nil
	}
	st := w.step
	st.mu.Lock()
	now := st.spool.cfg.Now().UnixMilli()
	w.enc = w.enc[:0]
	count := 0
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part, ended := p, i >= 0
		if ended {
			part = p[:i]
		}
		p = p[min(len(part)+1, len(p)):]
		count += w.add(now, part, ended)
		if len(w.enc) >= flushBytes {
			st.append(w.enc, count)
			w.enc, count = w.enc[:0], 0
		}
	}
	if count > 0 {
		st.append(w.enc, count)
	}
	w.arm()
	st.mu.Unlock()
	st.spool.wake.Signal()
	if count > 0 && st.isUrgent() {
		st.spool.urgent.Signal()
	}
	return n, nil
}

// add encodes what is complete of the current line and part, and returns the number of lines made.
func (w *Stream) add(now int64, part []byte, ended bool) (count int) {
	if ended && len(w.line) == 0 && len(part) <= wire.MaxLogLineBytes { // the usual case: no copy
		w.emit(now, part, "")
		return 1
	}
	w.line = append(w.line, part...)
	for len(w.line) > wire.MaxLogLineBytes {
		cut := runeStart(w.line, wire.MaxLogLineBytes)
		w.emit(now, w.line[:cut], wire.LogContinues)
		w.line = append(w.line[:0], w.line[cut:]...)
		count++
	}
	if ended {
		w.emit(now, w.line, "")
		w.line = w.line[:0]
		count++
	}
	return count
}

func (w *Stream) emit(now int64, line []byte, suffix string) {
	if suffix == "" {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	if w.at != now || w.frame == nil {
		w.at, w.frame = now, appendFrame(w.frame[:0], now, w.level)
	}
	w.enc = appendRest(append(w.enc, w.frame...), line, suffix)
	w.cont = suffix != ""
}

// runeStart is the largest cut ≤ at that does not divide a UTF-8 sequence.
func runeStart(b []byte, at int) int {
	for i := at; i > at-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return at
}

// arm starts or stops the clock of an unfinished line.
func (w *Stream) arm() {
	switch {
	case len(w.line) == 0:
		if w.timer != nil {
			w.timer.Stop()
		}
	case w.timer == nil:
		w.timer = time.AfterFunc(partialDelay, w.showPartial)
	default:
		w.timer.Reset(partialDelay)
	}
}

func (w *Stream) showPartial() {
	st := w.step
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(w.line) == 0 || w.closed {
		return
	}
	w.enc = w.enc[:0]
	w.emit(st.spool.cfg.Now().UnixMilli(), w.line, wire.LogContinues)
	w.line = w.line[:0]
	st.append(w.enc, 1)
	st.spool.wake.Signal()
}

// Close ends the last line.
func (w *Stream) Close() {
	st := w.step
	st.mu.Lock()
	defer st.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if len(w.line) > 0 || w.cont { // a part that promised more gets its end
		w.enc = w.enc[:0]
		w.emit(st.spool.cfg.Now().UnixMilli(), w.line, "")
		w.line = nil
		st.append(w.enc, 1)
	}
	st.spool.wake.Signal()
}

// plain marks the bytes that stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\' && c != 0x7f
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// appendLine encodes a wire.LogLine by hand: it is the hot path of every job.
func appendLine(dst []byte, ts int64, level string, msg []byte, suffix string) []byte {
	return appendRest(appendFrame(dst, ts, level), msg, suffix)
}

func appendFrame(dst []byte, ts int64, level string) []byte {
	dst = strconv.AppendInt(append(dst, `{"ts":`...), ts, 10)
	return append(append(append(dst, `,"level":"`...), level...), `","msg":"`...)
}

func appendRest(dst, msg []byte, suffix string) []byte {
	return append(append(appendString(dst, msg), suffix...), "\"}\n"...)
}

func appendString(dst, s []byte) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[from:i]...)
		dst = appendEscape(dst, c)
		i += size
		from = i
	}
	return append(dst, s[from:]...)
}

func appendEscape(dst []byte, c byte) []byte {
	switch {
	case c >= utf8.RuneSelf:
		return append(dst, "\ufffd"...)
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
