// Command profiled is kici with a CPU profile of every process, for finding what the rows of the benchmark cost:
//
//	go build -o /tmp/kici-profiled ./internal/harness/profiled
//	PROFILES_DIR=/tmp/profiles go run ./internal/harness/bench -kici /tmp/kici-profiled -only throughput
//
// It stays out of the product: nothing in there listens for a profiler or writes one.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/kici-go/kici/internal/app"
)

// variable names the directory of the profiles; kici refuses KICI_ settings that it does not know, so this is not one of them.
const variable = "PROFILES_DIR"

func main() { os.Exit(run()) }

func run() int {
	dir := os.Getenv(variable)
	if dir == "" {
		return app.Main(context.Background(), os.Args)
	}
	name := func(kind string) string { return filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", kind, os.Getpid())) }
	cpu, err := os.Create(name("cpu"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "profiled:", err)
		return 1
	}
	defer cpu.Close()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		fmt.Fprintln(os.Stderr, "profiled:", err)
		return 1
	}
	code := app.Main(context.Background(), os.Args)
	pprof.StopCPUProfile()
	for _, kind := range []string{"allocs", "heap"} {
		if f, err := os.Create(name(kind)); err == nil {
			runtime.GC()
			_ = pprof.Lookup(kind).WriteTo(f, 0)
			_ = f.Close()
		}
	}
	return code
}
