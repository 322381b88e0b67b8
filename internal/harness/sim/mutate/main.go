// Command mutate breaks the product on purpose, one fault at a time, and lets the simulation look for each (docs/simulation.md). The
// tree is not touched: the compiler is given other contents for the files of a mutation.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/harness/sim"
)

func main() {
	only := flag.String("only", "", "names of mutations, divided by commas; all without")
	seeds := flag.Int("seeds", 32, "seeds of each set that are played at most; CI plays 32")
	budget := flag.Duration("budget", 3*time.Minute, "time that one set gets at most for one mutation")
	flag.Parse()
	missed := 0
	fmt.Println("| mutation | what is broken | servers | seeds | found by |\n|---|---|---|---|---|")
	for _, m := range mutations {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		r, err := try(m, *seeds, *budget)
		if err != nil {
			r.found = "error: " + err.Error()
		}
		if r.found == "" || err != nil {
			missed++
		}
		if r.found == "" {
			r.found = "**not found**"
		}
		fmt.Printf("| `%s` | %s | %d | %d | %s |\n", m.name, m.what, r.coordinators, r.seeds, r.found)
	}
	if missed > 0 {
		fmt.Fprintf(os.Stderr, "%d mutations were not found\n", missed)
		os.Exit(1)
	}
}

type result struct {
	coordinators int // of the set in which it was found
	seeds        int // that were played until then
	found        string
}

// try builds the simulation with one mutation and plays the seeds of both sets, the likelier one first, until something is violated.
func try(m mutation, seeds int, budget time.Duration) (r result, err error) {
	dir, err := os.MkdirTemp("", "kici-mutate-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := m.overlay(dir)
	if err != nil {
		return r, err
	}
	program := filepath.Join(dir, "sim.test")
	cmd := exec.CommandContext(context.Background(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./internal/harness/sim")
	if text, err := cmd.CombinedOutput(); err != nil {
		return r, fmt.Errorf("build: %w: %s", err, text)
	}
	for _, n := range []int{m.coordinators, 4 - m.coordinators} {
		c := sim.Campaign{
			Program: program, Args: []string{"-test.run=^TestWorker$"}, Seeds: sim.Range(1, seeds), Coordinators: n, StopAtFirst: true, Budget: budget,
		}
		played, failed := c.Run(context.Background())
		r.coordinators, r.seeds = n, r.seeds+played
		if len(failed) > 0 {
			slices.SortFunc(failed, func(a, b sim.Result) int { return int(a.Seed) - int(b.Seed) })
			first, _, _ := strings.Cut(failed[0].Violations[0], "\n")
			kind, _, _ := strings.Cut(strings.TrimPrefix(first, "guard: "), ":")
			r.found = fmt.Sprintf("%s (seed %d)", kind, failed[0].Seed)
			fmt.Fprintf(os.Stderr, "%s: seed %d: %.300s\n", m.name, failed[0].Seed, first)
			break
		}
	}
	return r, nil
}

// overlay writes the changed files and tells the compiler of them.
func (m mutation) overlay(dir string) (string, error) {
	replace := map[string]string{}
	texts, err := m.apply(".")
	if err != nil {
		return "", err
	}
	for file, text := range texts {
		path, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		into := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(into, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = into
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}

// apply returns the changed files by path below root.
func (m mutation) apply(root string) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	for _, e := range m.edits {
		text, ok := out[e.file]
		if !ok {
			data, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			errs = append(errs, fmt.Errorf("%s: %s has the text %d times: %q", m.name, e.file, n, e.old))
		}
		out[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return out, errors.Join(errs...)
}
