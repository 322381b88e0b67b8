package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

const killDir = "KICI_STORE_TEST_KILL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		writeUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// writeUntilKilled is the process that TestAcceptedSurvivesKill kills: it says which writes were accepted.
func writeUntilKilled(dir string) {
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), c, i)
				if err := addOrg(s, id); err != nil {
					panic(err)
				}
				mu.Lock()
				_, _ = os.Stdout.WriteString("accepted " + id + "\n")
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// kill -9 at any moment, again and again on the same directory: what was accepted is there, and the store opens.
func TestAcceptedSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	accepted := map[string]bool{}
	for round := range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), killDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if id, ok := strings.CutPrefix(lines.Text(), "accepted "); ok && strings.Count(id, "-") == 2 {
				accepted[id] = true
			}
			if n == 100+37*round {
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
	}
	if len(accepted) < 500 {
		t.Fatalf("only %d writes were accepted", len(accepted))
	}
	s := openDir(t, dir)
	orgs, err := s.Read().Orgs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, o := range orgs {
		found[o.ID] = true
	}
	lost := 0
	for id := range accepted {
		if !found[id] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d accepted writes are lost", lost, len(accepted))
	}
	t.Log(strconv.Itoa(len(accepted)) + " accepted, " + strconv.Itoa(len(orgs)) + " stored")
}
