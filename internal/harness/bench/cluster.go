package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// measureCluster is the throughput of one and of three coordinators on one PostgreSQL that makes every commit durable. On a machine
// whose processors are all busy with one, three cannot be faster: the row shows what they cost.
func measureCluster(ctx context.Context, b *bench) error {
	db, stop, err := postgres(ctx)
	if err != nil {
		return err
	}
	defer stop()
	n := int64(1500)
	if b.quick {
		n = 300
	}
	var first float64
	for _, count := range []int{1, 3} {
		rate, used, err := b.clusterRate(ctx, db, count, n)
		if err != nil {
			return fmt.Errorf("%d coordinators: %w", count, err)
		}
		r := row{What: fmt.Sprintf("jobs/s on PostgreSQL, coordinators: %d", count), Goal: "-", Got: fmt.Sprintf("%.0f/s, %s", rate, used)}
		if count == 1 {
			first = rate
		} else {
			r.Yardstick, r.Ratio = "one coordinator", fmt.Sprintf("%.2f×", rate/first)
		}
		b.rows = append(b.rows, r)
	}
	return nil
}

func (b *bench) clusterRate(ctx context.Context, db string, count int, n int64) (rate float64, used string, err error) {
	name := fmt.Sprintf("kici%d", count)
	if out, err := exec.CommandContext(ctx, "psql", db+"/postgres", "-qc", "CREATE DATABASE "+name).CombinedOutput(); err != nil {
		return 0, "", fmt.Errorf("create database: %s", out)
	}
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	for i := range count {
		dir := filepath.Join(b.dir, name, strconv.Itoa(i))
		s := server{
			dir: dir, args: []string{"--database-url", db + "/" + name + "?sslmode=disable", "--storage-dir", filepath.Join(b.dir, name, "files")},
			env: []string{"KICI_SECRET_KEY=" + strings.Repeat("0123456789abcdef", 4)},
		}
		if i > 0 {
			token, err := os.ReadFile(filepath.Join(servers[0].dir, "admin.token"))
			if err != nil {
				return 0, "", err
			}
			s.token = strings.TrimSpace(string(token))
		}
		started, err := b.startWith(ctx, s)
		if err != nil {
			return 0, "", err
		}
		servers = append(servers, started)
	}
	return b.load(ctx, servers, n)
}

// postgres starts one of its own, as the user postgres where this is root, and returns its address without a database.
func postgres(ctx context.Context) (url string, stop func(), err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		return "", nil, errors.New("there is no PostgreSQL on this machine")
	}
	bin := found[len(found)-1]
	dir, err := os.MkdirTemp("", "kici-bench-pg-")
	if err != nil {
		return "", nil, err
	}
	as, err := asPostgres(dir)
	if err != nil {
		return "", nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", nil, err
	}
	run := func(ctx context.Context, name string, args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
		cmd.SysProcAttr = as
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	data := filepath.Join(dir, "data")
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = run(ctx, "pg_ctl", "-D", data, "-m", "immediate", "stop")
		_ = os.RemoveAll(dir)
	}
	options := fmt.Sprintf("-p %d -k %s -c listen_addresses=127.0.0.1 -c max_connections=200", port, dir)
	err = errors.Join(run(ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"))
	if err == nil {
		err = run(ctx, "pg_ctl", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", options, "start")
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return "postgres://postgres@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), stop, nil
}
