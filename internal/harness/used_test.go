package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// expectNothingUsed is what must hold when all runs have ended: nothing counts any more, and nothing of any agent is left on the host.
func (s *storm) expectNothingUsed() {
	s.t.Helper()
	looks := []func() error{s.settled, s.unusedScalers, s.unusedMetrics, s.unusedPool, s.noTokens, s.noFolders, s.noGroups}
	var left error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, look := range looks {
			left = errors.Join(left, look())
		}
		if left == nil {
			return
		}
	}
	s.t.Errorf("something is left: %v\n%s", left, s.log)
}

// unusedScalers is what people see of capacity.
func (s *storm) unusedScalers() error {
	list, err := s.api.Scalers(s.t.Context())
	if err != nil {
		return err
	}
	if len(list.Scalers) != 1 {
		return fmt.Errorf("there are %d scalers", len(list.Scalers))
	}
	if c := list.Scalers[0]; c.ActiveCount+c.StartingCount+c.EndingCount+c.WarmCount > 0 || c.UsedCPUMilli != 0 || c.UsedMemBytes != 0 {
		return fmt.Errorf("the scaler has %d agents, %d starting, %d ending; used are %d CPU/1000 and %d bytes", c.ActiveCount, c.StartingCount, c.EndingCount, c.UsedCPUMilli, c.UsedMemBytes)
	}
	return nil
}

func (s *storm) unusedMetrics() error {
	resp, err := http.Get(s.url("/metrics"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	seen := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "kici_orch_scaler_cpus_used{") && !strings.HasPrefix(line, "kici_orch_scaler_memory_bytes_used{") {
			continue
		}
		if seen++; !strings.HasSuffix(line, " 0") {
			return fmt.Errorf("metric %s", line)
		}
	}
	if seen < 4 { // each for the scaler and for all
		return fmt.Errorf("%d metrics of what is used", seen)
	}
	return nil
}

// unusedPool is what the other servers of the machine see.
func (s *storm) unusedPool() error {
	text, err := os.ReadFile(filepath.Join(s.role.Pools, "storm.json"))
	if err != nil {
		return err
	}
	var pool struct {
		Reservations []json.RawMessage `json:"reservations"`
	}
	if err := json.Unmarshal(text, &pool); err != nil {
		return err
	}
	if n := len(pool.Reservations); n > 0 {
		return fmt.Errorf("%d reservations in the machine pool", n)
	}
	return nil
}

func (s *storm) noTokens() error {
	list, err := s.api.AgentTokens(s.t.Context(), "ephemeral")
	if err != nil {
		return err
	}
	for _, t := range list.Tokens {
		if t.RevokedAt == nil {
			return fmt.Errorf("the token of agent %s is good for something", t.AgentID)
		}
	}
	return nil
}

// noFolders looks for anything in the data directory that is named after an agent.
func (s *storm) noFolders() error {
	return noneNamed(s.role.DataDir, s.agentIDs())
}

// noGroups looks through every cgroup hierarchy.
func (s *storm) noGroups() error {
	return noneNamed("/sys/fs/cgroup", s.agentIDs())
}

// agentIDs are those of all agents that the ledger remembers.
func (s *storm) agentIDs() map[string]bool {
	ids := map[string]bool{}
	for cursor := ""; ; {
		list, err := s.api.Agents(s.t.Context(), true, "", cursor, 100)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, a := range list.Agents {
			ids[a.ID] = true
		}
		if cursor = list.NextCursor; cursor == "" {
			return ids
		}
	}
}

func noneNamed(root string, ids map[string]bool) error {
	if len(ids) == 0 {
		return errors.New("there were no agents")
	}
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err == nil && e.IsDir() && ids[e.Name()] {
			err = fmt.Errorf("%s is left", path)
		}
		return err
	})
}
