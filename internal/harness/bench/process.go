package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kici-go/kici/client"
)

func measureSize(_ context.Context, b *bench) error {
	info, err := os.Stat(b.kici)
	if err != nil {
		return err
	}
	b.add(row{What: "installed", Goal: "one file ≤ 40 MB", Got: mib(info.Size())}, info.Size() <= 40e6)
	return nil
}

func measureStart(ctx context.Context, b *bench) error {
	var first, again, bare []time.Duration
	for i := range 7 {
		dir := filepath.Join(b.dir, fmt.Sprintf("start-%d", i))
		for _, into := range []*[]time.Duration{&first, &again} {
			d, err := b.timeToHealthy(ctx, dir)
			if err != nil {
				return err
			}
			*into = append(*into, d)
		}
		t := time.Now()
		if err := exec.CommandContext(ctx, "/bin/true").Run(); err != nil {
			return err
		}
		bare = append(bare, time.Since(t))
	}
	y := quantile(bare, .5)
	for _, m := range []struct {
		name string
		d    time.Duration
	}{{"start → healthy, first start", quantile(first, .5)}, {"start → healthy, again", quantile(again, .5)}} {
		b.add(row{
			What: m.name, Goal: "≤ 150 ms", Got: ms(m.d), Yardstick: "bare exec " + ms(y), Ratio: fmt.Sprintf("%.0f×", float64(m.d)/float64(y)),
		}, m.d <= 150*time.Millisecond)
	}
	return nil
}

func (b *bench) timeToHealthy(ctx context.Context, dir string) (time.Duration, error) {
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	s := &server{dir: dir, port: port, url: fmt.Sprintf("http://127.0.0.1:%d", port), log: &bytes.Buffer{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, "scalers.yaml"), []byte(scalersFile), 0o600); err != nil {
		return 0, err
	}
	t := time.Now()
	if err := s.launch(ctx, b.kici); err != nil {
		return 0, err
	}
	defer s.stop()
	if err := s.wait(ctx, "/ready"); err != nil {
		return 0, err
	}
	return time.Since(t), nil
}

func measureIdle(ctx context.Context, b *bench) error {
	s, err := b.start(ctx, filepath.Join(b.dir, "idle"))
	if err != nil {
		return err
	}
	defer s.stop()
	agent, err := b.realAgent(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	time.Sleep(4 * time.Second)
	whole, anonymous, err := rss(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.add(row{What: "idle RSS, server", Goal: "≤ 40 MB", Got: mib(whole), Yardstick: "anonymous part " + mib(anonymous)}, whole <= 40e6)
	if whole, anonymous, err = rss(agent.Process.Pid); err != nil {
		return err
	}
	b.add(row{What: "idle RSS, agent", Goal: "≤ 12 MB", Got: mib(whole), Yardstick: "anonymous part " + mib(anonymous)}, whole <= 12e6)
	return nil
}

// realAgent starts `kici agent` as a static agent and waits until the server knows it.
func (b *bench) realAgent(ctx context.Context, s *server) (*exec.Cmd, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	t, err := c.CreateAgentToken(ctx, client.NewAgentToken{Labels: []string{"static"}})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "agent.token.bench")
	if err := os.WriteFile(file, []byte(t.Token), 0o600); err != nil {
		return nil, err
	}
	agent := exec.CommandContext(ctx, b.kici, "agent", "--url", s.url, "--token-file", file, "--labels", "static", "--work-dir", filepath.Join(s.dir, "static"))
	agent.SysProcAttr = dyingWithUs()
	agent.Stderr = s.log
	if err := agent.Start(); err != nil {
		return nil, err
	}
	for range 500 {
		list, err := c.Agents(ctx, false, "", "", 10)
		if err != nil {
			return nil, err
		}
		for _, a := range list.Agents {
			if a.Connected {
				return agent, nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("the agent did not register: %s", s.log)
}

func measureCrash(ctx context.Context, b *bench) error {
	dir := filepath.Join(b.dir, "crash")
	s, err := b.start(ctx, dir)
	if err != nil {
		return err
	}
	var times []time.Duration
	for range 5 {
		if err := s.cmd.Process.Kill(); err != nil {
			return err
		}
		t := time.Now()
		_ = s.cmd.Wait()
		if err := s.launch(ctx, b.kici); err != nil {
			return err
		}
		if err := s.wait(ctx, "/ready"); err != nil {
			return err
		}
		times = append(times, time.Since(t))
	}
	s.stop()
	d := quantile(times, .5)
	b.add(row{What: "crash (kill -9) → serving again", Goal: "≤ 1 s", Got: ms(d)}, d <= time.Second)
	return nil
}
