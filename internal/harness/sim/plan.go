package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/app"
)

// adminToken is the owner's, in every world.
const adminToken = "00000000000000000000000000000000000000000000000000000000000051a1"

// plan is what a seed makes of the world, beside the chances of each actor.
type plan struct {
	coordinators int
	faultsFor    time.Duration // from the start of the workload
	workFor      time.Duration
	slowOneIn    uint64 // database calls of which one takes up to two seconds
	calm         bool   // no faults at all: what happens then is the product's own
	gpu          int    // agents of the second scaler
	linux        int
	global       int
	warm         int // agents of each label set that stand ready; 0 is no pool
	pool         int // processors of the machine that all servers share; 0 is no machine pool
	statics      int // agents that no scaler has started
	repos        int
	leap         time.Duration // of the clock of a shared database, once
	leapAt       time.Duration
	pause        time.Duration // of a server that leads, in the middle of a leader write; once
	pauseAt      time.Duration
	outage       time.Duration // in which no machine starts anything; once
	outageAt     time.Duration
}

func newPlan(s seed, coordinators int) plan {
	d := s.dice("plan")
	p := plan{
		coordinators: coordinators, faultsFor: d.between(20*time.Second, 60*time.Second), slowOneIn: 100 + d.next()%800,
		calm: d.chance(10), linux: 1 + d.below(4), gpu: 1 + d.below(2), repos: 1 + d.below(2),
		statics: d.below(3),
	}
	p.global = max(1, p.linux+p.gpu-d.below(3))
	if d.chance(50) {
		p.warm = 1 + d.below(2)
	}
	if d.chance(40) {
		p.pool = 1 + d.below(p.global*coordinators)
	}
	p.workFor = d.between(p.faultsFor/2, p.faultsFor)
	if coordinators > 1 && !p.calm && d.chance(60) {
		p.leap, p.leapAt = d.between(10*time.Second, 30*time.Second), d.between(5*time.Second, p.faultsFor)
	}
	if coordinators > 1 && !p.calm && d.chance(70) {
		p.pause, p.pauseAt = d.between(16*time.Second, 28*time.Second), d.between(2*time.Second, p.faultsFor*2/3)
	}
	if !p.calm && d.chance(35) {
		p.outage, p.outageAt = d.between(15*time.Second, 50*time.Second), d.between(0, p.faultsFor/2)
		if d.chance(50) { // when nothing else breaks any more, what waits says why, and that is true
			p.outageAt = p.faultsFor * 3 / 4
			p.outage = p.faultsFor/4 + quick(peaceAfter) + d.between(20*time.Second, 40*time.Second)
		}
	}
	return p
}

// out reports whether machines start nothing just now.
func (p plan) out(w *world) bool {
	since := w.started.since()
	return p.outage > 0 && !w.ending.Load() && !w.started.pending() && since >= p.outageAt && since < p.outageAt+p.outage
}

// databaseNow is the clock of a shared database. When another of its machines takes over it may leap, so that a leader is deposed who
// does not know it.
func (w *world) databaseNow() time.Time {
	if !w.started.pending() && w.plan.leap > 0 && w.started.since() >= w.plan.leapAt {
		return time.Now().Add(w.plan.leap)
	}
	return time.Now()
}

// doom is how a life ends.
func (p plan) doom(w *world, l *life) doom {
	d := w.seed.dice("doom " + l.actor)
	out := doom{loud: d.chance(70)}
	if p.calm || l.n > 6 || !w.started.pending() && !w.faulty() {
		return out
	}
	switch k := d.below(100); {
	case k < 25:
		out.commit = 1 + d.next()%40
	case k < 55:
		out.commit = 20 + d.next()%400
	case k < 75:
		out.send = 1 + d.next()%200
	}
	out.before = d.chance(50)
	if p.coordinators == 1 && d.chance(70) { // others could not write meanwhile
		out.hang = d.between(100*time.Millisecond, 6*time.Second)
	}
	return out
}

// partition is until when a life cannot reach a database that it shares. Each minute has at most one.
func (p plan) partition(w *world, l *life) time.Time {
	if p.coordinators < 2 || pace > 1 || !w.faulty() {
		return time.Time{}
	}
	at := time.Since(w.trace.began)
	slot := uint64(at / (20 * time.Second))
	h := w.seed.at("partition "+l.c.name, slot)
	if h%100 >= 25 {
		return time.Time{}
	}
	from := time.Duration(slot)*20*time.Second + upTo(h>>8, 10*time.Second)
	until := from + upTo(h>>20, 25*time.Second)
	if at < from {
		return time.Time{}
	}
	return w.trace.began.Add(until)
}

// full reports whether the disk of a server that has its own takes nothing just now. Of each twenty seconds four may be so, and some
// steps find it full when they ask for something.
func (p plan) full(w *world, l *life) bool {
	if p.coordinators > 1 || pace > 1 || !w.faulty() {
		return false
	}
	at := time.Since(w.trace.began)
	if at < time.Duration(w.fullUntil.Load()) {
		return true
	}
	slot := uint64(at / (20 * time.Second))
	h := w.seed.at("full "+l.c.name, slot)
	from := time.Duration(slot)*20*time.Second + upTo(h>>8, 16*time.Second)
	return h%100 < 45 && at >= from && at < from+time.Second+upTo(h>>20, 3*time.Second)
}

// tune makes the waits of the product short enough for many schedules.
func tune(t *app.Tuning) {
	t.Run.QueueTimeout = 4 * time.Minute
	d := &t.Dispatch
	d.Interval, d.RecoveryGrace, d.SpawnTimeout, d.UnroutableGrace = 2*time.Second, 20*time.Second, 30*time.Second, 30*time.Second
	d.JobStale, d.CancelRedrive, d.SweepInterval = 45*time.Second, 40*time.Second, 15*time.Second
	f := &t.Fleet
	f.Heartbeat, f.Unhealthy, f.Dead, f.Linger = 10*time.Second, 20*time.Second, 45*time.Second, 20*time.Second
	s := &t.Scaler
	s.SpawnTimeout, s.RegisterTimeout, s.BackoffBase, s.BackoffMax = 20*time.Second, 30*time.Second, 4*time.Second, 40*time.Second
	s.DeleteTimeout, s.Interval, s.RetireGrace = 15*time.Second, 2*time.Second, time.Minute
	t.Ingress.Lease, t.Ingress.Workers = 20*time.Second, 3
	for _, span := range []*time.Duration{
		&t.Run.QueueTimeout, &d.Interval, &d.RecoveryGrace, &d.SpawnTimeout, &d.UnroutableGrace, &d.JobStale, &d.CancelRedrive, &d.SweepInterval,
		&f.Heartbeat, &f.Unhealthy, &f.Dead, &f.Linger, &s.SpawnTimeout, &s.RegisterTimeout, &s.BackoffBase, &s.BackoffMax, &s.DeleteTimeout, &s.Interval, &s.RetireGrace, &t.Ingress.Lease,
	} {
		*span = quick(*span)
	}
}

// offer is what a scalers.yaml says.
type offer struct{ linux, gpu, global, warm, pool int } // gpu 0: the second scaler is not there

func (p plan) offer() offer { return offer{p.linux, p.gpu, p.global, p.warm, p.pool} }

// another is what a person makes of it while things run.
func (o offer) another(d *dice) offer {
	next := offer{linux: 1 + d.below(4), gpu: 1 + d.below(2), warm: o.warm, pool: o.pool}
	next.global = max(1, next.linux+next.gpu-d.below(3))
	switch k := d.below(100); {
	case k < 20: // it retires, until somebody thinks better of it
		next.gpu = 0
	case k < 60:
		next.warm = d.below(3)
	}
	return next
}

// text is the scalers.yaml.
func (o offer) text() string {
	pool := ""
	if o.warm > 0 {
		pool = fmt.Sprintf("    warmPool: {enabled: true, size: %d, idleTimeoutSeconds: 5}\n", o.warm)
	}
	top := ""
	if o.pool > 0 {
		pool += "    machinePool: box\n"
		top = fmt.Sprintf("machinePools: [{name: box, cap: {maxCpu: %d}}]\n", o.pool)
	}
	entry := func(name string, most int, label string) string {
		return fmt.Sprintf("  - name: %s\n    type: fake\n    maxAgents: %d\n%s    labelSets:\n      - labels: [%s]\n", name, most, pool, label)
	}
	text := fmt.Sprintf("version: 1\nglobalMaxAgents: %d\ndefaults: {resources: {cpus: 1, memory: 1g}}\n%sscalers:\n", o.global, top) + entry("small", o.linux, "linux")
	if o.gpu > 0 {
		text += entry("big", o.gpu, "gpu")
	}
	return text
}

// workflow draws one workflow file.
func workflow(d *dice, name string, metal bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\non:\n  push: {branches: [main]}\n  workflow_dispatch:\n", name)
	if d.chance(10) {
		fmt.Fprintf(&b, "timeout-minutes: %d\n", 1+d.below(2))
	}
	if d.chance(25) {
		fmt.Fprintf(&b, "concurrency: {group: deploy, cancel-in-progress: %v, max: %d}\n", d.chance(40), 1+d.below(2))
	}
	b.WriteString("jobs:\n")
	n := 1 + d.below(4)
	for i := range n {
		fmt.Fprintf(&b, "  j%d:\n    checkout: false\n", i)
		switch k := d.below(100); {
		case k < 14 && metal:
			b.WriteString("    runs-on: " + staticLabel + "\n")
		case k < 74:
			b.WriteString("    runs-on: linux\n")
		case k < 96:
			b.WriteString("    runs-on: gpu\n")
		default:
			b.WriteString("    runs-on: mainframe\n")
		}
		var needs []string
		for up := range i {
			if d.chance(40) {
				needs = append(needs, fmt.Sprintf("j%d", up))
			}
		}
		if len(needs) > 0 {
			fmt.Fprintf(&b, "    needs: [%s]\n", strings.Join(needs, ", "))
			if d.chance(20) {
				b.WriteString("    if: ${{ always() }}\n")
			}
		}
		if d.chance(20) {
			fmt.Fprintf(&b, "    strategy:\n      fail-fast: %v\n", d.chance(50))
			if d.chance(50) {
				fmt.Fprintf(&b, "      max-parallel: %d\n", 1+d.below(2))
			}
			b.WriteString("      matrix: {v: [1, 2, 3]}\n")
		}
		if d.chance(12) {
			fmt.Fprintf(&b, "    concurrency: {group: lock, cancel-in-progress: %v}\n", d.chance(30))
		}
		if d.chance(10) {
			b.WriteString("    continue-on-error: true\n")
		}
		if d.chance(10) {
			b.WriteString("    timeout-minutes: 0.1\n")
		}
		steps(d, &b)
	}
	return b.String()
}

// steps draws what a job does.
func steps(d *dice, b *strings.Builder) {
	b.WriteString("    steps:\n")
	for range 1 + d.below(3) {
		exit, stubborn := 0, ""
		if d.chance(10) {
			exit = 1
		}
		if d.chance(10) {
			stubborn = " stubborn"
		}
		ms := 50 + d.below(3000)
		if d.chance(10) {
			ms += 15000
		}
		asks := ""
		if d.chance(14) {
			asks += fmt.Sprintf(" add=%d", 1+d.below(2))
		}
		if d.chance(8) {
			asks += " emit=deploy.wanted"
		}
		fmt.Fprintf(b, "      - run: sim ms=%d lines=%d exit=%d%s%s\n", ms, d.below(4), exit, stubborn, asks)
	}
}

// after is started by the end of a run of w0.
const after = `name: after
on:
  workflow_complete: {workflow: w0}
jobs:
  tell:
    checkout: false
    runs-on: linux
    steps:
      - run: sim ms=100 lines=1
`

// heard is started by an event; another workflow of the same kind is called heard-too.
const heard = `name: heard
on:
  kici_event: {name: deploy.wanted}
jobs:
  hear:
    checkout: false
    runs-on: linux
    steps:
      - run: sim ms=100 lines=1
`

// steady is what the last look starts, when nothing breaks any more (epilogue.go).
const steady = `name: steady
on:
  workflow_dispatch:
jobs:
  first:
    checkout: false
    runs-on: linux
    steps:
      - run: sim ms=8000 lines=1
  second:
    checkout: false
    runs-on: linux
    needs: [first]
    steps:
      - run: sim ms=100 lines=1
`

// tick is started by the clock.
const tick = `name: tick
on:
  schedule:
    - cron: '* * * * *'
jobs:
  tock:
    checkout: false
    runs-on: linux
    steps:
      - run: sim ms=100 lines=1
`
