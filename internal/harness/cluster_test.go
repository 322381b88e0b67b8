package harness

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
)

// clusterWorkflow makes fifty jobs, each of which leaves one line: run twice, it would leave two.
const clusterWorkflow = `name: load
on: push
jobs:
  j:
    runs-on: load
    checkout: false
    strategy:
      fail-fast: false
      matrix:
        n: [%s]
    steps:
      - run: echo "${{ kici.run_id }} ${{ matrix.n }}" >> "%%[1]s/ran"
`

const (
	coordinators   = 3
	clusterAgents  = 8
	jobsOfARun     = 50
	clusterGrace   = 10 * time.Second
	clusterPatient = 10 * time.Minute // for a machine that is ten times slower
)

// cluster is three coordinators on one PostgreSQL behind a balancer, and agents on machines of their own.
type cluster struct {
	*world  // the first coordinator's: repository, API through the balancer
	nodes   []*world
	balance *balancer
	token   string

	mu     sync.Mutex
	agents map[string]*exec.Cmd
	killed map[string]bool // agents that were killed
	born   int
}

// TestClusterSurvivesKills runs many jobs on three coordinators that are killed and started again at random, with agents that die
// too. Every accepted push becomes its runs; each job runs once, or is reported lost to its dead agent, never silently.
func TestClusterSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for a minute")
	}
	base := os.Getenv("KICI_TEST_POSTGRES")
	if base == "" {
		require(t, "postgres", "KICI_TEST_POSTGRES is not set: no PostgreSQL to test with")
	}
	jobs := 200
	if n, err := strconv.Atoi(os.Getenv("KICI_TEST_CLUSTER_JOBS")); err == nil {
		jobs = n
	}
	c := newCluster(t, database(t, base))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	began := time.Now()
	runs := jobs / jobsOfARun
	var kills atomic.Int64
	quiet := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() { c.killCoordinators(rand.New(rand.NewPCG(seed, 1)), quiet, &kills) })
	chaos.Go(func() { c.killAgentsNowAndThen(rand.New(rand.NewPCG(seed, 2)), quiet) })
	for i := range runs {
		c.pushUntilAccepted(fmt.Sprintf("push-%d", i))
	}
	c.until("nine of ten runs end among the kills", clusterPatient, func() bool { return c.endedRuns() >= runs*9/10 })
	close(quiet)
	chaos.Wait()
	c.until("all runs end", clusterPatient, func() bool { return c.endedRuns() >= runs })
	lost := c.judge(runs)
	t.Logf("%d jobs in %s among %d kills of coordinators and %d of agents; %d jobs lost to their agents", jobs, time.Since(began).Round(time.Second), kills.Load(), len(c.killed), lost)
}

func newCluster(t *testing.T, databaseURL string) *cluster {
	var list []string
	for i := range jobsOfARun {
		list = append(list, strconv.Itoa(i+1))
	}
	first := newWorld(t, databaseURL, fmt.Sprintf(clusterWorkflow, strings.Join(list, ", ")))
	c := &cluster{world: first, agents: map[string]*exec.Cmd{}, killed: map[string]bool{}}
	c.balance = newBalancer(t)
	for i := range coordinators {
		n := &world{t: t, dir: first.dir, role: first.role, api: &client.Client{}}
		n.role.DataDir = filepath.Join(first.dir, fmt.Sprintf("data-%d", i))
		n.role.Port = freePort(t)
		n.role.StorageDir = filepath.Join(first.dir, "files")
		n.role.SecretKey = strings.Repeat("0123456789abcdef", 4)
		n.role.PublicURL = "http://" + c.balance.addr
		n.role.Grace = clusterGrace
		c.nodes = append(c.nodes, n)
		n.start(0)
		c.balance.add(n.role.Port)
		t.Cleanup(n.cleanUp)
	}
	first.role = c.nodes[0].role
	first.connect()
	tok, err := c.api.CreateAgentToken(t.Context(), client.NewAgentToken{Labels: []string{"load"}})
	if err != nil {
		t.Fatal(err)
	}
	c.token = tok.Token
	if c.api, err = client.New(client.Config{URL: "http://" + c.balance.addr, Token: adminToken(t, c.nodes[0])}); err != nil {
		t.Fatal(err)
	}
	for range clusterAgents {
		c.startAgent()
	}
	return c
}

func adminToken(t *testing.T, n *world) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.role.DataDir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// startAgent starts an agent as on a machine of its own, which connects through the balancer.
func (c *cluster) startAgent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.born++
	id := fmt.Sprintf("box-%d", c.born)
	cmd := exec.Command(os.Args[0], "agent")
	cmd.Env = append(os.Environ(), "KICI_ORCHESTRATOR_URL=ws://"+c.balance.addr+"/ws", "KICI_AGENT_ID="+id, "KICI_AGENT_TOKEN="+c.token,
		"KICI_AGENT_DIR="+filepath.Join(c.dir, "agent-"+id), "KICI_WORK_DIR="+filepath.Join(c.dir, "work-"+id))
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	c.agents[id] = cmd
	c.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// killCoordinators kills one after the other with SIGKILL, at any moment, and starts it again a little later.
func (c *cluster) killCoordinators(rng *rand.Rand, quiet <-chan struct{}, kills *atomic.Int64) {
	for pause(quiet, time.Duration(1500+rng.IntN(3000))*time.Millisecond) {
		n := c.nodes[rng.IntN(len(c.nodes))]
		_ = n.cmd.Process.Kill()
		<-n.exited
		kills.Add(1)
		pause(quiet, time.Duration(200+rng.IntN(2000))*time.Millisecond)
		n.launch(0)
	}
	for _, n := range c.nodes {
		if n.dead() {
			n.launch(0)
		}
	}
}

func (c *cluster) killAgentsNowAndThen(rng *rand.Rand, quiet <-chan struct{}) {
	for pause(quiet, time.Duration(2000+rng.IntN(5000))*time.Millisecond) {
		c.mu.Lock()
		for id, cmd := range c.agents { // any
			_ = cmd.Process.Kill()
			delete(c.agents, id)
			c.killed[id] = true
			break
		}
		c.mu.Unlock()
		c.startAgent()
	}
}

// pause reports false when it is over before its time.
func pause(quiet <-chan struct{}, d time.Duration) bool {
	select {
	case <-quiet:
		return false
	case <-time.After(d):
		return true
	}
}

// pushUntilAccepted does what a sender does: it repeats a delivery that was not answered.
func (c *cluster) pushUntilAccepted(id string) {
	c.t.Helper()
	c.until("the push is accepted", clusterPatient, func() bool {
		status := c.push(id)
		return status == http.StatusAccepted || status == http.StatusOK
	})
}

// endedRuns asks through the balancer, which may have nobody to ask for a moment.
func (c *cluster) endedRuns() (n int) {
	list, err := c.api.Runs(c.t.Context(), client.RunQuery{Limit: 100})
	if err != nil {
		return 0
	}
	for _, r := range list.Runs {
		if r.FinishedAt != nil {
			n++
		}
	}
	return n
}

// judge checks every job of every run against what the steps left, and returns how many were lost with their agents.
func (c *cluster) judge(runs int) (lost int) {
	c.t.Helper()
	lines := map[string]int{}
	for _, line := range c.ran() {
		lines[line]++
	}
	list, err := c.api.Runs(c.t.Context(), client.RunQuery{Limit: 100})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(list.Runs) != runs {
		c.t.Errorf("%d runs, want %d: one for each push", len(list.Runs), runs)
	}
	for _, r := range list.Runs {
		d, err := c.api.Run(c.t.Context(), r.ID)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(d.Jobs) != jobsOfARun {
			c.t.Errorf("run %s has %d jobs", r.ID, len(d.Jobs))
		}
		for _, j := range d.Jobs {
			n := lines[fmt.Sprintf("%s %s", r.ID, strings.Trim(strings.TrimPrefix(j.Name, "j "), "()"))]
			switch {
			case j.Status == "success" && n == 1:
			case j.Status == "failed" && n <= 1 && c.killed[j.AgentID] && strings.Contains(j.Error, j.AgentID):
				lost++
			default:
				c.t.Errorf("job %s of run %s is %s and left %d lines; agent %s (killed: %v): %s", j.Name, r.ID, j.Status, n, j.AgentID, c.killed[j.AgentID], j.Error)
			}
		}
	}
	return lost
}

// balancer passes each connection on to one of the coordinators, as a machine in front of them would.
type balancer struct {
	addr string
	mu   sync.Mutex
	to   []string
	next int
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{addr: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go b.pass(conn)
		}
	}()
	return b
}

func (b *balancer) add(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = append(b.to, fmt.Sprintf("127.0.0.1:%d", port))
}

// pass tries one coordinator after the other.
func (b *balancer) pass(in net.Conn) {
	defer func() { _ = in.Close() }()
	b.mu.Lock()
	to := append([]string{}, b.to...)
	b.next++
	first := b.next
	b.mu.Unlock()
	for i := range to {
		out, err := net.DialTimeout("tcp", to[(first+i)%len(to)], time.Second)
		if err != nil {
			continue
		}
		defer func() { _ = out.Close() }()
		done := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() { _, _ = io.Copy(pair[0], pair[1]); done <- struct{}{} }()
		}
		<-done
		return
	}
}
