package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store/storetest"
)

var (
	seeds        = flag.Int("seeds", 0, "how many seeds to play; 0 is the small set of the tests")
	first        = flag.Uint64("seed", 1, "the first of them")
	coordinators = flag.Int("coordinators", 0, "servers on one database; 0 is each of the sets")
	verbose      = flag.Bool("trace", false, "write the whole trace")
)

func TestWorker(t *testing.T) {
	if !IsWorker() {
		t.Skip("this is a process of a campaign")
	}
	Worker(t)
}

func campaign(t *testing.T, list []uint64, coordinators int) Campaign {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Campaign{Program: program, Args: []string{"-test.run=^TestWorker$"}, Seeds: list, Coordinators: coordinators, Verbose: *verbose}
	if raceEnabled {
		c.Limit = 10 * time.Minute
	}
	return c
}

// replay is how to play a seed again.
func replay(seed uint64, coordinators int) string {
	return fmt.Sprintf("make sim SEED=%d COORDINATORS=%d", seed, coordinators)
}

// TestSimulation plays seeds and checks that what was promised holds.
func TestSimulation(t *testing.T) {
	if IsWorker() {
		t.Skip("this is a process of a campaign")
	}
	if testing.Short() && *seeds == 0 {
		t.Skip("in a hurry")
	}
	for _, n := range []int{1, 3} {
		if *coordinators > 0 && *coordinators != n {
			continue
		}
		t.Run(fmt.Sprintf("%d coordinators", n), func(t *testing.T) {
			count := *seeds
			if count == 0 {
				count = map[int]int{1: 8, 3: 2}[n]
				if raceEnabled { // 5 to 20 times slower (D25): CI plays its seeds without it
					count = 1
				}
			}
			c := campaign(t, Range(*first, count), n)
			began := time.Now()
			var sum Stats
			c.Each = func(r Result) {
				sum = sum.plus(r.Stats)
				if *seeds == 1 {
					fmt.Printf("seed %d: trace %016x, %d events, %s of virtual time in %s, %+v\n", r.Seed, r.Hash, r.Events, r.Virtual, r.Real, r.Stats)
				}
			}
			played, failed := c.Run(context.Background())
			took := time.Since(began)
			fmt.Printf("%d coordinators: %d schedules in %s, %.2f a second, %d failed, %+v\n", n, played, took.Round(time.Millisecond), float64(played)/took.Seconds(), len(failed), sum)
			for _, r := range failed {
				for _, v := range r.Violations {
					t.Errorf("seed %d: %s", r.Seed, v)
				}
				t.Logf("play it again: %s", replay(r.Seed, n))
			}
		})
	}
}

// TestRealTimeOnPostgreSQL plays a few of the worlds in real time on the real PostgreSQL, with the same checks.
func TestRealTimeOnPostgreSQL(t *testing.T) {
	if IsWorker() || testing.Short() || raceEnabled {
		t.Skip("not in a process of a campaign, nor in a hurry, nor with the race detector, which is too slow for real time")
	}
	server := storetest.Server(t)
	for n, list := range map[int][]uint64{1: {5, 6}, 3: {5, 8}} {
		t.Run(fmt.Sprintf("%d coordinators", n), func(t *testing.T) {
			t.Parallel()
			if *seeds > 0 {
				list = Range(*first, *seeds)
			}
			c := campaign(t, list, n)
			c.Server, c.Processes = server, 2
			began := time.Now()
			var sum Stats
			c.Each = func(r Result) {
				sum = sum.plus(r.Stats)
				t.Logf("seed %d: %s, %+v", r.Seed, r.Virtual.Round(time.Second), r.Stats)
			}
			played, failed := c.Run(context.Background())
			t.Logf("%d worlds in %s, %+v", played, time.Since(began).Round(time.Second), sum)
			if played != len(list) {
				t.Errorf("%d of %d worlds were played", played, len(list))
			}
			for _, r := range failed {
				for _, v := range r.Violations {
					t.Errorf("seed %d: %s", r.Seed, v)
				}
			}
		})
	}
}

// TestPostgresGuards: no guard is lost on the way to the other engine.
func TestPostgresGuards(t *testing.T) {
	if made, want := strings.Count(postgresGuards(), "CREATE TRIGGER"), strings.Count(guards, "CREATE TRIGGER"); made != want {
		t.Errorf("%d triggers of %d", made, want)
	}
}

// TestSameSeedSameTrace: a failure that cannot be repeated is of little use. The operating system may interfere, so one of three plays
// may differ on a busy machine (docs/simulation.md).
func TestSameSeedSameTrace(t *testing.T) {
	if IsWorker() || testing.Short() || raceEnabled {
		t.Skip("not in a process of a campaign, nor in a hurry, nor where the race detector changes who goes first")
	}
	same := 0
	const worlds = 3
	for s := *first; s < *first+worlds; s++ {
		hashes := map[uint64]int{}
		for range 2 {
			c := campaign(t, []uint64{s}, 1)
			c.Each = func(r Result) { hashes[r.Hash]++ }
			c.Run(context.Background())
		}
		if len(hashes) == 1 {
			same++
		}
	}
	if same == 0 {
		t.Errorf("none of %d seeds gave the same trace twice", worlds)
	}
}
