package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/kici-go/kici/internal/placement"
)

// machinePool: the agents of all servers that have been started take no more than the pool has, whoever died in between, and the pool's own
// file says no more either.
func (s *sampler) machinePool(pool *database) {
	w := s.p.w
	if w.plan.pool == 0 {
		return
	}
	found, err := rows(pool, "SELECT COALESCE(SUM(cpu_milli), 0) FROM agents WHERE scaler <> '' AND state NOT IN ('requested', 'gone') AND launch NOT IN ('', '{}')")
	if err != nil {
		return // the server has just died
	}
	if n, _ := strconv.Atoi(found[0][0]); n > 1000*w.plan.pool {
		w.violate("machine pool", "agents with %d thousandths of a processor, of %d", n, 1000*w.plan.pool)
	}
	reserved, _ := w.reserved()
	if len(reserved) > w.plan.pool {
		w.violate("machine pool", "%d reservations of one processor, of %d: %v", len(reserved), w.plan.pool, reserved)
	}
}

// reserved are the agents with a reservation in the file of the machine pool.
func (w *world) reserved() (agents []string, err error) {
	data, err := os.ReadFile(filepath.Join(w.ledgerDir(), "box.json"))
	if err != nil {
		return nil, err
	}
	var file struct{ Reservations []struct{ AgentID string } }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	for _, r := range file.Reservations {
		agents = append(agents, r.AgentID)
	}
	return agents, nil
}

// falsePool: a machine pool that is said to be full is, with the agents of all servers; each counts for one processor.
func falsePool(f queueFacts, r placement.Reason) (wrong, rests string) {
	n, ids := 0, []string(nil)
	for _, a := range f.agents {
		if a.node != "" {
			n++
			ids = append(ids, a.id)
		}
	}
	m := inPool.FindStringSubmatch(r.Text)
	if m == nil {
		return "it does not say how much there is", ""
	}
	if most, _ := strconv.Atoi(m[1]); n < most {
		return fmt.Sprintf("there are %d agents for %d processors", n, most), fmt.Sprint(ids)
	}
	return "", ""
}

var inPool = regexp.MustCompile(`of (\d+) cpu in use`)
