package scaler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store/storetest"
)

// A node lives through anything: launches, registrations, deaths, withdrawals, failing listings and deletes, and processes that are
// killed between recording and acting. When the trouble is over, ledger and host agree, both ways.
func TestLedgerAndHostAgreeAfterAnything(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := &chaos{rig: newRig(t, storetest.SQLiteDatabase(t), oneScaler), random: rand.New(rand.NewPCG(seed, 1))}
			c.trouble()
			for range 120 {
				c.step()
			}
			c.host.OnDelete, c.host.OnList = nil, nil
			for range 20 {
				c.later(31 * time.Second) // past every retry and grace
				c.tick()
			}
			c.agree()
		})
	}
}

type chaos struct {
	*rig
	random *rand.Rand
	made   int
}

func (c *chaos) trouble() {
	random := rand.New(rand.NewPCG(c.random.Uint64(), 2))
	var mu sync.Mutex // deletes run at the same time
	c.host.OnDelete = func(context.Context, backend.Ref) error {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(4) == 0 {
			return fmt.Errorf("deleting fails")
		}
		return nil
	}
	c.host.OnList = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(10) == 0 {
			return fmt.Errorf("listing fails")
		}
		return nil
	}
}

func (c *chaos) step() {
	switch c.random.IntN(10) {
	case 0, 1, 2:
		c.made++
		c.request(fmt.Sprintf("agent-%03d", c.made))
	case 3, 4:
		if id := c.pick("booting"); id != "" {
			c.register(id)
		}
	case 5:
		if running := c.host.Running(); len(running) > 0 {
			c.host.Kill(running[c.random.IntN(len(running))], "killed by SIGKILL")
		}
	case 6:
		if id := c.pick("requested", "starting", "booting", "online"); id != "" {
			c.withdraw(id)
		}
	case 7:
		c.host.Put("one", backend.Instance{AgentID: fmt.Sprint("stranger-", c.made), Running: c.random.IntN(2) == 0})
	case 8: // kill -9 between recording and acting, and a new process
		c.recordOnly()
		c.restart()
	default:
		c.later(time.Duration(c.random.IntN(3000)) * time.Millisecond)
		c.tick()
	}
}

// restart makes a new node over the same store and host.
func (c *chaos) restart() {
	host := c.host
	c.start()
	if c.host != host {
		c.t.Fatal("the host does not outlive the process")
	}
}

func (c *chaos) pick(states ...string) string {
	var ids []string
	for id, row := range c.rows() {
		if slices.Contains(states, row.State) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return ids[c.random.IntN(len(ids))]
}

func (c *chaos) agree() {
	rows := c.rows()
	for id, row := range rows {
		if !slices.Contains(c.host.Running(), id) {
			c.t.Errorf("row %s (%s) has no running thing", id, row.State)
		}
		if row.State != "online" && row.State != "booting" {
			c.t.Errorf("row %s is still %s", id, row.State)
		}
	}
	for _, id := range c.host.Things() {
		if _, ok := rows[id]; !ok || strings.HasPrefix(id, "stranger") {
			c.t.Errorf("thing %s has no row", id)
		}
	}
	var tokens int
	for n := int64(1); n <= c.tokens.Load(); n++ {
		if _, err := c.st.Read().FleetToken(c.t.Context(), fmt.Sprint("hash-", n)); err == nil {
			tokens++
		}
	}
	if tokens != len(rows) {
		c.t.Errorf("%d tokens for %d agents", tokens, len(rows))
	}
}
