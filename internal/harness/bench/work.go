package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/client"
)

const workflowFile = `name: bench
on: push
jobs:
  build:
    runs-on: %s
    steps:
      - name: step
        run: %s
`

// origin is a local repository registered as a source, to which pushes can be reported.
type origin struct {
	url, secret, sha, dir string
	http                  *http.Client
	n                     atomic.Int64
}

// repository makes a repository with one workflow and registers it.
func (b *bench) repository(ctx context.Context, s *server, label, script string) (*origin, error) {
	return b.repositoryOf(ctx, s, label, fmt.Sprintf(workflowFile, label, strconv.Quote(script)))
}

// repositoryOf makes one with a workflow of this text.
func (b *bench) repositoryOf(ctx context.Context, s *server, label, text string) (*origin, error) {
	dir := filepath.Join(s.dir, "repo-"+label)
	if err := os.MkdirAll(filepath.Join(dir, ".kici/workflows"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ".kici/workflows/bench.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "-A"},
		{"-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-q", "-m", "bench"},
	} {
		if out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("git %s: %s", args[0], out)
		}
	}
	sha, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "HEAD").Output()
	if err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	added, err := c.AddSource(ctx, client.NewSource{Kind: "local", Name: "repo-" + label, Path: dir, Repo: "bench/" + label})
	if err != nil {
		return nil, err
	}
	return &origin{url: added.WebhookURL, secret: added.Secret, sha: strings.TrimSpace(string(sha)), dir: dir, http: keepAlive()}, nil
}

func keepAlive() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}, Timeout: 30 * time.Second}
}

// push reports a push of the commit.
func (o *origin) push(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"ref": "refs/heads/main", "before": strings.Repeat("0", 40), "after": o.sha})
	if err != nil {
		return err
	}
	return o.post(ctx, "push", body)
}

func (o *origin) post(ctx context.Context, event string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(o.secret))
	mac.Write(body)
	req.Header.Set("X-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-Event-Type", event)
	req.Header.Set("X-Delivery-Id", fmt.Sprintf("%s-%d-%d", event, time.Now().UnixNano(), o.n.Add(1)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return nil
}

func measureWebhooks(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "webhooks"))
	if err != nil {
		return err
	}
	defer s.stop()
	c, err := s.client()
	if err != nil {
		return err
	}
	added, err := c.AddSource(ctx, client.NewSource{Kind: "generic", Name: "hooks", Options: json.RawMessage(`{"rateLimitRpm":10000000}`)})
	if err != nil {
		return err
	}
	o := &origin{url: added.WebhookURL, secret: added.Secret, http: keepAlive()}
	body, err := json.Marshal(map[string]string{"text": strings.Repeat("x", 2000)})
	if err != nil {
		return err
	}
	const clients = 16
	length := 5 * time.Second
	if b.quick {
		length = 2 * time.Second
	}
	var mu sync.Mutex
	var all []time.Duration
	var shed atomic.Int64
	var firstErr error
	var wg sync.WaitGroup
	used := s.meter()
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			var mine []time.Duration
			for time.Since(begin) < length && ctx.Err() == nil {
				t := time.Now()
				if err := o.post(ctx, "deploy", body); err != nil {
					if shed.Add(1) == 1 {
						mu.Lock()
						firstErr = err
						mu.Unlock()
					}
					continue
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	rate := float64(len(all)) / time.Since(begin).Seconds()
	each := used(len(all))
	p99 := quantile(all, .99)
	y, err := fsyncRate(b.dir, length/4)
	if err != nil {
		return err
	}
	got := fmt.Sprintf("%.0f/s, p50 %s, p99 %s, %s", rate, ms(quantile(all, .5)), ms(p99), each)
	if n := shed.Load(); n > 0 {
		got += fmt.Sprintf(", %d refused (%v)", n, firstErr)
	}
	b.add(row{
		What: "webhooks accepted durably, 2 KB, 16 at once", Goal: "≥ 4000/s, p99 ≤ 20 ms", Got: got,
		Yardstick: fmt.Sprintf("write + fsync of 2 KB %.0f/s", y), Ratio: fmt.Sprintf("%.2f×", rate/y),
	}, rate >= 4000 && p99 <= 20*time.Millisecond)
	return nil
}

func fsyncRate(dir string, length time.Duration) (float64, error) {
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := make([]byte, 2048)
	n := 0
	begin := time.Now()
	for ; time.Since(begin) < length; n++ {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

func measureLatency(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "latency"))
	if err != nil {
		return err
	}
	defer s.stop()
	o, err := b.repository(ctx, s, "fake", "true")
	if err != nil {
		return err
	}
	got, done := make(chan time.Time, 1), make(chan struct{}, 1)
	agents, err := gather(ctx, s, 1, []string{"fake"}, func(a *fakeAgent) {
		a.dispatched = func(_ string, at time.Time) { got <- at }
		a.finished = func(string) { done <- struct{}{} }
	})
	if err != nil {
		return err
	}
	defer agents.leave()
	var times []time.Duration
	n := 200
	if b.quick {
		n = 40
	}
	for i := range n + 5 {
		t := time.Now()
		if err := o.push(ctx); err != nil {
			return err
		}
		at, err := within(ctx, got)
		if err != nil {
			return fmt.Errorf("job %d was not dispatched: %w: %s", i, err, s.log)
		}
		if i >= 5 {
			times = append(times, at.Sub(t))
		}
		if _, err := within(ctx, done); err != nil {
			return fmt.Errorf("job %d did not finish: %w: %s", i, err, s.log)
		}
		time.Sleep(3 * time.Millisecond)
	}
	p50 := quantile(times, .5)
	y, err := fsyncRate(b.dir, time.Second/2)
	if err != nil {
		return err
	}
	b.add(row{
		What: "webhook → job at an idle agent, p50", Goal: "≤ 6 ms", Got: fmt.Sprintf("%s (p99 %s)", ms(p50), ms(quantile(times, .99))),
		Yardstick: "one fsync " + ms(time.Duration(float64(time.Second)/y)), Ratio: fmt.Sprintf("%.1f×", p50.Seconds()*y),
	}, p50 <= 6*time.Millisecond)
	return nil
}

func within[T any](ctx context.Context, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-time.After(15 * time.Second):
		return v, errors.New("15 s passed")
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

func measureSpawn(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "spawn"))
	if err != nil {
		return err
	}
	defer s.stop()
	mark := filepath.Join(b.dir, "mark")
	o, err := b.repository(ctx, s, "spawn", "date +%s%N > "+mark)
	if err != nil {
		return err
	}
	var times, bare []time.Duration
	n := 20
	if b.quick {
		n = 6
	}
	for range n {
		t := time.Now()
		if err := o.push(ctx); err != nil {
			return err
		}
		at, err := waitMark(ctx, mark)
		if err != nil {
			return fmt.Errorf("%w: %s", err, s.log)
		}
		times = append(times, at.Sub(t))
		d, err := bareCheckout(ctx, b.dir, o, mark)
		if err != nil {
			return err
		}
		bare = append(bare, d)
		time.Sleep(50 * time.Millisecond)
	}
	p50, y := quantile(times, .5), quantile(bare, .5)
	b.add(row{
		What: "webhook → first step on a process agent spawned for it", Goal: "≤ 100 ms over a bare checkout", Got: ms(p50),
		Yardstick: "checkout and exec " + ms(y), Ratio: "+" + ms(p50-y),
	}, p50-y <= 100*time.Millisecond)
	return nil
}

func waitMark(ctx context.Context, mark string) (time.Time, error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(500 * time.Microsecond) {
		text, err := os.ReadFile(mark)
		if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
			continue
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return time.Time{}, err
		}
		return time.Unix(0, ns), os.Remove(mark)
	}
	return time.Time{}, errors.New("the step did not run")
}

// bareCheckout is what cannot be saved: git fetching one commit into an empty directory, and the step.
func bareCheckout(ctx context.Context, dir string, o *origin, mark string) (time.Duration, error) {
	work, err := os.MkdirTemp(dir, "bare")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	t := time.Now()
	script := fmt.Sprintf("git init -q . && git fetch -q --depth=1 'file://%s' %s && git checkout -q --detach FETCH_HEAD && date +%%s%%N > %s", o.dir, o.sha, mark)
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("bare checkout: %s", out)
	}
	at, err := waitMark(ctx, mark)
	return at.Sub(t), err
}

func measureThroughput(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "throughput"))
	if err != nil {
		return err
	}
	defer s.stop()
	n := int64(3000)
	if b.quick {
		n = 600
	}
	rate, used, err := b.load(ctx, []*server{s}, n)
	if err != nil {
		return err
	}
	y, err := fsyncRate(b.dir, time.Second/2)
	if err != nil {
		return err
	}
	b.add(row{
		What: fmt.Sprintf("jobs/s end to end, %d runs, %d fake agents", n, loadAgents), Goal: "≥ 500/s", Got: fmt.Sprintf("%.0f/s, %s", rate, used),
		Yardstick: fmt.Sprintf("fsync %.0f/s", y), Ratio: fmt.Sprintf("%.2f×", rate/y),
	}, rate >= 500)
	return nil
}

const loadAgents = 32

// load starts n runs of one job on servers that share a database, with fake agents and pushes spread over them, and returns how
// many ended in a second and the processor time of each.
func (b *bench) load(ctx context.Context, servers []*server, n int64) (rate float64, used string, err error) {
	o, err := b.repository(ctx, servers[0], "fake", "true")
	if err != nil {
		return 0, "", err
	}
	var finished atomic.Int64
	all := make(chan struct{})
	pushes := make([]*origin, len(servers))
	for i, s := range servers {
		pushes[i] = &origin{url: strings.Replace(o.url, servers[0].url, s.url, 1), secret: o.secret, sha: o.sha, http: keepAlive()}
		agents, err := gather(ctx, s, (loadAgents+i)/len(servers), []string{"fake"}, func(a *fakeAgent) {
			a.finished = func(string) {
				if finished.Add(1) == n {
					close(all)
				}
			}
		})
		if err != nil {
			return 0, "", err
		}
		defer agents.leave()
	}
	spent := meter(servers)
	begin := time.Now()
	var wg sync.WaitGroup
	var sent atomic.Int64
	for i := range 16 {
		to := pushes[i%len(pushes)]
		wg.Go(func() {
			for sent.Add(1) <= n && ctx.Err() == nil {
				for to.push(ctx) != nil && ctx.Err() == nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-all:
	case <-ctx.Done():
		return 0, "", fmt.Errorf("only %d of %d jobs finished: %s", finished.Load(), n, servers[0].log)
	}
	return float64(n) / time.Since(begin).Seconds(), spent(int(n)), nil
}
