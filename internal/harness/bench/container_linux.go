package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	moby "github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// containerRows names the file that gets the rows of a process in the namespaces of an engine.
const containerRows = "BENCH_CONTAINER_ROWS"

const containerScalers = `version: 1
scalers:
  - name: box
    type: container
    maxAgents: 4
    socketPath: %s
    labelSets:
      - labels: [box]
        image: %s
        imagePullPolicy: Never
        volumes: ["%s:/shared"]
`

const containerWorkflow = `name: bench
on: push
jobs:
  build:
    runs-on: box
    checkout: false
    steps:
      - run: ': > /shared/mark'
`

// measureContainer measures beside a Docker of its own, in namespaces of its own: nothing of it is left on this machine.
func measureContainer(ctx context.Context, b *bench) error {
	for _, p := range []string{"dockerd", "docker", "busybox"} {
		if _, err := exec.LookPath(p); err != nil {
			return err
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("a Docker of its own needs root")
	}
	file := filepath.Join(b.dir, "container-rows")
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-kici", b.kici, fmt.Sprintf("-quick=%v", b.quick))
	cmd.Env = append(os.Environ(), containerRows+"="+file)
	cmd.SysProcAttr = dyingWithUs()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var rows []row
	if err := json.Unmarshal(text, &rows); err != nil {
		return err
	}
	b.rows = append(b.rows, rows...)
	return nil
}

// insideNamespaces measures, and does not return, in a process that measureContainer has started.
func insideNamespaces(b *bench) {
	file := os.Getenv(containerRows)
	if file == "" {
		return
	}
	enginetest.Main(nil, func(*testing.M) int {
		err := b.compareContainers(context.Background())
		if err == nil {
			var text []byte
			if text, err = json.Marshal(b.rows); err == nil {
				err = os.WriteFile(file, text, 0o600)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	})
}

// compareContainers runs jobs and bare containers of the same image in turn, both until a file appears on this machine.
func (b *bench) compareContainers(ctx context.Context) error {
	e, err := enginetest.Open("docker")
	if err != nil {
		return err
	}
	rootfs, err := enginetest.Rootfs()
	if err != nil {
		return err
	}
	if err := e.Load(ctx, enginetest.Busybox, rootfs); err != nil {
		return err
	}
	dir := filepath.Join(enginetest.Dir(), "bench")
	shared := filepath.Join(dir, "shared")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "scalers.yaml"), fmt.Appendf(nil, containerScalers, e.Socket, enginetest.Busybox, shared), 0o600); err != nil {
		return err
	}
	s, err := b.start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	o, err := b.repositoryOf(ctx, s, "box", containerWorkflow)
	if err != nil {
		return err
	}
	mark := filepath.Join(shared, "mark")
	n := 15
	if b.quick {
		n = 5
	}
	var ours, bare, over, overNet []time.Duration
	for i := range n + 1 {
		t := time.Now()
		if err := o.push(ctx); err != nil {
			return err
		}
		job, err := untilThere(mark, t)
		if err != nil {
			return fmt.Errorf("the job's step: %w: %s", err, s.log)
		}
		run, err := bareRun(ctx, e, mark)
		if err != nil {
			return err
		}
		inNet, err := bareRun(ctx, e, mark, "--network", "kici-agent-net")
		if err != nil {
			return err
		}
		if i > 0 { // the first of each warms everything up
			ours, bare, over, overNet = append(ours, job), append(bare, run), append(over, job-run), append(overNet, job-inNet)
		}
		if err := noContainers(ctx, e); err != nil {
			return err
		}
	}
	more := quantile(over, .5) // of pairs: what else this machine does is then nearly the same for both
	b.add(row{
		What: "webhook → first step in a container spawned for it, isolated", Goal: "≤ 150 ms over a bare docker run", Got: ms(quantile(ours, .5)),
		Yardstick: "docker run of the same image " + ms(quantile(bare, .5)),
		Ratio: fmt.Sprintf("+%s (median of %d pairs, quartiles %s and %s); +%s over docker run in the same network", ms(more), len(over),
			ms(quantile(over, .25)), ms(quantile(over, .75)), ms(quantile(overNet, .5))),
	}, more <= 150*time.Millisecond)
	return nil
}

// bareRun is docker run until its command has made the file, once nothing else is there.
func bareRun(ctx context.Context, e *enginetest.Engine, mark string, options ...string) (time.Duration, error) {
	if err := noContainers(ctx, e); err != nil {
		return 0, err
	}
	args := append([]string{"-H", "unix://" + e.Socket, "run", "--rm", "-v", filepath.Dir(mark) + ":/shared"}, options...)
	t := time.Now()
	cmd := exec.CommandContext(ctx, "docker", append(args, enginetest.Busybox, "sh", "-c", ": > /shared/mark")...)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	took, err := untilThere(mark, t)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("docker run: %w", err)
	}
	return took, nil
}

// untilThere waits for a file, removes it, and returns how long after a moment it was there.
func untilThere(file string, since time.Time) (time.Duration, error) {
	for time.Since(since) < 20*time.Second {
		if _, err := os.Stat(file); err == nil {
			return time.Since(since), os.Remove(file)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return 0, errors.New("20 s passed")
}

// noContainers waits until the engine has nothing to do with the last one any more.
func noContainers(ctx context.Context, e *enginetest.Engine) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list, err := e.API.ContainerList(ctx, moby.ContainerListOptions{All: true})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			time.Sleep(50 * time.Millisecond)
			return nil
		}
	}
	return errors.New("a container stays: " + strings.TrimSpace(e.Log()))
}
