package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
	"pgregory.net/rapid"
)

type wakes struct {
	mu sync.Mutex
	n  int
}

func (w *wakes) Publish(store.Topic, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

type rig struct {
	*Store
	dir   string
	clock time.Time
	wakes *wakes
}

var job = Job{RunID: "run-1", JobID: "job-1", Attempt: 1}

func newRig(t testing.TB, maxBytes int64) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), clock: time.UnixMilli(1_000_000), wakes: &wakes{}}
	r.reopen(t, maxBytes)
	return r
}

// reopen is what a restart does: a new store over the same files.
func (r *rig) reopen(t testing.TB, maxBytes int64) {
	t.Helper()
	blobs, err := blob.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Store = New(blobs, r.wakes, obs.NewMetrics(), obs.Discard(), Config{MaxJobBytes: maxBytes, Now: func() time.Time { return r.clock }})
	t.Cleanup(func() { _ = r.Close(); _ = blobs.Close() })
}

func (r *rig) path(step int) string {
	return filepath.Join(r.dir, filepath.FromSlash(stepKey(job, step)))
}

func line(i int) string { return fmt.Sprintf(`{"ts":%d,"level":"stdout","msg":"line %d"}`+"\n", i, i) }

func text(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(line(i))
	}
	return b.String()
}

func (r *rig) add(t testing.TB, offset int64, s string) (wire.LogAck, error) {
	t.Helper()
	return r.Append(t.Context(), job, 0, offset, strings.NewReader(s))
}

func (r *rig) must(t testing.TB, offset int64, s string, want int64) {
	t.Helper()
	if ack, err := r.add(t, offset, s); err != nil || ack.Offset != want || ack.Truncated {
		t.Fatalf("append at %d: %+v, %v; want offset %d", offset, ack, err, want)
	}
}

func (r *rig) messages(t testing.TB, step int) []string {
	t.Helper()
	var out []string
	for cursor := int64(0); ; {
		lines, next, err := r.Read(t.Context(), job, step, cursor, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) == 0 {
			return out
		}
		for _, l := range lines {
			out = append(out, l.Msg)
		}
		cursor = next
	}
}

// XC-135: a repeated request stores each line once, and a hole is refused with the place to go on.
func TestXC135Offsets(t *testing.T) {
	r := newRig(t, 0)
	a, b := text(0, 10), text(10, 20)
	r.must(t, 0, a, int64(len(a)))
	r.must(t, 0, a, int64(len(a)))                                               // repeated
	r.must(t, 0, a+b, int64(len(a+b)))                                           // repeated with more
	r.must(t, int64(len(a)), b+line(20)+`{"torn`, int64(len(a+b)+len(line(20)))) // the torn line is not taken
	ack, err := r.add(t, int64(len(a+b)+500), "x\n")
	if !errors.Is(err, ErrOffset) || ack.Offset != int64(len(a+b)+len(line(20))) {
		t.Errorf("a hole: %+v, %v", ack, err)
	}
	data, _ := os.ReadFile(r.path(0))
	if string(data) != text(0, 21) {
		t.Errorf("stored:\n%s", data)
	}
	if r.wakes.n != 3 {
		t.Errorf("%d wakes, want one for each request that stored something", r.wakes.n)
	}
	if got := r.Bytes(job); got != int64(len(data)) {
		t.Errorf("Bytes = %d, want %d", got, len(data))
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, 0)
	for _, j := range []Job{{"..", "j", 1}, {"r", "a/b", 1}, {"", "j", 1}, {"r", "j", -1}, {"r", "j\x00", 1}} {
		if _, err := r.Append(t.Context(), j, 0, 0, strings.NewReader("x\n")); !errors.Is(err, ErrName) {
			t.Errorf("%+v: %v", j, err)
		}
		if _, _, err := r.Read(t.Context(), j, 0, 0, 0); !errors.Is(err, ErrName) {
			t.Errorf("read %+v: %v", j, err)
		}
	}
	if _, err := r.Append(t.Context(), job, -1, 0, strings.NewReader("x\n")); !errors.Is(err, ErrName) {
		t.Errorf("step -1: %v", err)
	}
	if _, err := r.add(t, -1, "x\n"); !errors.Is(err, ErrName) {
		t.Errorf("offset -1: %v", err)
	}
	if _, err := r.add(t, 0, strings.Repeat("x", 300<<10)); !errors.Is(err, ErrLine) {
		t.Errorf("endless line: %v", err)
	}
}

// Any way of cutting the stream into requests, repeating and racing them gives the same file.
func TestAnyDeliveryGivesTheSameLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, 0)
		want := text(0, rapid.IntRange(1, 400).Draw(rt, "lines"))
		for durable := 0; durable < len(want); {
			from := rapid.IntRange(0, durable).Draw(rt, "from")
			to := min(len(want), durable+rapid.IntRange(0, 4000).Draw(rt, "more"))
			copies := rapid.IntRange(1, 3).Draw(rt, "copies")
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				r.reopen(t, 0)
			}
			acks := make([]wire.LogAck, copies)
			var wg sync.WaitGroup
			for i := range copies {
				wg.Go(func() { acks[i], _ = r.add(t, int64(lineFloor(want, from)), want[lineFloor(want, from):to]) })
			}
			wg.Wait()
			for _, ack := range acks {
				if ack.Offset < int64(durable) {
					rt.Fatalf("acknowledged %d after %d", ack.Offset, durable)
				}
				durable = int(ack.Offset)
			}
		}
		if data, _ := os.ReadFile(r.path(0)); string(data) != want {
			rt.Fatalf("stored %d bytes, want %d", len(data), len(want))
		}
	})
}

func lineFloor(s string, at int) int { return strings.LastIndexByte(s[:at], '\n') + 1 }

// After kill -9 or a power cut the end of the file may be anything that was not acknowledged.
func TestTornTailIsCut(t *testing.T) {
	for name, tail := range map[string]string{
		"half a line": `{"ts":1,"level":"std`, "zeros": strings.Repeat("\x00", 5000), "zeros and newline": "\x00\x00\n",
		"nothing": "", "long": strings.Repeat("y", 200<<10),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 0)
			a := text(0, 50)
			r.must(t, 0, a, int64(len(a)))
			f, err := os.OpenFile(r.path(0), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.WriteString(tail)
			_ = f.Close()
			r.reopen(t, 0)
			r.must(t, int64(len(a)), line(50), int64(len(a)+len(line(50))))
			if data, _ := os.ReadFile(r.path(0)); string(data) != text(0, 51) {
				t.Errorf("stored %q", data[max(0, len(data)-100):])
			}
		})
	}
}

func TestBoundOfAJob(t *testing.T) {
	const limit = 1000
	r := newRig(t, limit)
	a := text(0, 10)
	r.must(t, 0, a, int64(len(a)))
	more := text(10, 100)
	for range 2 { // again after a restart
		ack, err := r.add(t, int64(len(a)), more)
		if err != nil || !ack.Truncated || ack.Offset != int64(len(a+more)) {
			t.Fatalf("%+v, %v", ack, err)
		}
		if ack, err = r.Append(t.Context(), job, 1, 0, strings.NewReader(a)); err != nil || !ack.Truncated {
			t.Fatalf("another step: %+v, %v", ack, err)
		}
		r.reopen(t, limit)
	}
	msgs := r.messages(t, 0)
	last := msgs[len(msgs)-1]
	if !strings.Contains(last, "reached its bound of 1000 B") || msgs[len(msgs)-2] != fmt.Sprintf("line %d", len(msgs)-2) {
		t.Errorf("end of log: %q", msgs[len(msgs)-2:])
	}
	if other := r.messages(t, 1); len(other) != 1 || other[0] != last {
		t.Errorf("other step: %q", other)
	}
	if r.Bytes(job) > limit+400 {
		t.Errorf("%d bytes stored", r.Bytes(job))
	}
}

// XC-134: while the storage refuses, the agent keeps its lines; after a while they are dropped, marked and counted, also
// across a restart, and the job goes on.
func TestXC134StorageDown(t *testing.T) {
	r := newRig(t, 0)
	a := text(0, 10)
	r.must(t, 0, a, int64(len(a)))
	fail := func() { // every write to the open file fails from here on
		st := r.jobs[job].steps[0]
		_ = st.file.Close()
	}
	mend := func() {
		f, err := os.OpenFile(r.path(0), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.jobs[job].steps[0].file = f
	}
	fail()
	b := text(10, 20)
	at := int64(len(a))
	if ack, err := r.add(t, at, b); !errors.Is(err, ErrUnavailable) || ack.Offset != at {
		t.Fatalf("at first the agent keeps its lines: %+v, %v", ack, err)
	}
	r.clock = r.clock.Add(patience)
	at += int64(len(b))
	r.must(t, at-int64(len(b)), b, at) // dropped
	mend()
	c := text(20, 30)
	at += int64(len(c))
	r.must(t, at-int64(len(c)), c, at)
	r.must(t, at-int64(len(c)), c, at) // repeated
	r.reopen(t, 0)
	d := text(30, 31)
	r.must(t, at, d, at+int64(len(d)))
	msgs := r.messages(t, 0)
	if len(msgs) != 22 || !strings.Contains(msgs[10], "missing here") || msgs[9] != "line 9" || msgs[11] != "line 20" || msgs[21] != "line 30" {
		t.Errorf("%d lines: %q", len(msgs), msgs)
	}
}

func TestReadPages(t *testing.T) {
	r := newRig(t, 0)
	if lines, next, err := r.Read(t.Context(), job, 3, 77, 5); err != nil || len(lines) != 0 || next != 77 {
		t.Errorf("missing log: %v, %d, %v", lines, next, err)
	}
	a := text(0, 3000) + "no json\n"
	r.must(t, 0, a, int64(len(a)))
	f, _ := os.OpenFile(r.path(0), os.O_APPEND|os.O_WRONLY, 0)
	_, _ = f.WriteString(`{"ts":1,"level":"stdout","msg":"not complete`)
	_ = f.Close()
	if got := r.messages(t, 0); len(got) != 3001 || got[2999] != "line 2999" || got[3000] != "no json" {
		t.Errorf("%d lines", len(got))
	}
	if lines, _, _ := r.Read(t.Context(), job, 0, 0, 99999); len(lines) != MaxLines {
		t.Errorf("limit is not clamped: %d", len(lines))
	}
	raw, err := r.Raw(t.Context(), job, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if data, _ := io.ReadAll(raw); !bytes.HasPrefix(data, []byte(a)) {
		t.Error("raw differs")
	}
}

func TestManyJobsAndDelete(t *testing.T) {
	r := newRig(t, 0)
	for i := range maxOpenJobs + 50 {
		j := Job{RunID: "run", JobID: fmt.Sprintf("job-%d", i), Attempt: 1}
		r.clock = r.clock.Add(time.Second)
		if _, err := r.Append(t.Context(), j, 0, 0, strings.NewReader(line(i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.jobs) > maxOpenJobs {
		t.Errorf("%d jobs open", len(r.jobs))
	}
	first := Job{RunID: "run", JobID: "job-0", Attempt: 1}
	if ack, err := r.Append(t.Context(), first, 0, int64(len(line(0))), strings.NewReader(line(1))); err != nil || ack.Offset != int64(len(line(0)+line(1))) {
		t.Errorf("evicted job: %+v, %v", ack, err)
	}
	r.Finish(first)
	if err := r.DeleteRun("run"); err != nil {
		t.Fatal(err)
	}
	if n := r.Bytes(first); n != 0 {
		t.Errorf("%d bytes left", n)
	}
}

// A burst: 100,000 lines in requests of 1 MiB, each durable before the answer.
func BenchmarkBurst(b *testing.B) {
	body := []byte(text(0, 100_000))
	r := newRig(b, 1<<40)
	b.SetBytes(int64(len(body)))
	for i := 0; b.Loop(); i++ {
		j := Job{RunID: "run", JobID: fmt.Sprintf("job-%d", i), Attempt: 1}
		for at := 0; at < len(body); {
			end := min(len(body), at+1<<20)
			ack, err := r.Append(b.Context(), j, 0, int64(at), bytes.NewReader(body[at:end]))
			if err != nil {
				b.Fatal(err)
			}
			at = int(ack.Offset)
			if end == len(body) {
				break
			}
		}
		r.Finish(j)
	}
}

// Many jobs that each send little.
func BenchmarkSmallRequests(b *testing.B) {
	r := newRig(b, 1<<40)
	body := text(0, 20)
	b.RunParallel(func(pb *testing.PB) {
		j := Job{RunID: "run", JobID: fmt.Sprintf("job-%d", rand.Uint64()), Attempt: 1}
		for at := int64(0); pb.Next(); {
			ack, err := r.Append(b.Context(), j, 0, at, strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			at = ack.Offset
		}
	})
}
