// Package sim runs whole orchestrators in one process and in virtual time: the real servers (app.NewServer) on the real SQLite, the
// real agents with a script in the place of processes, and between them a network, a machine and a disk that do what a seed says. It
// breaks everything that can break, lets the system settle, and checks that its promises have held (docs/simulation.md).
//
// # One seed, one trace
//
// Everything runs in a bubble of testing/synctest, whose clock moves only when all goroutines wait. Goroutines that become ready at
// the same instant run in any order; so every message, wake-up and database call takes a time of its own, a few microseconds with
// nanoseconds that are drawn from hash(seed, actor, operation, n), and hardly anything happens at the same instant (D25). Faults are
// drawn in the same way, never from a shared stream: what one actor does changes nothing for another. The runner keeps to one
// processor and puts garbage collection off, and counts on the trace's hash to tell when all this is not enough.
//
// # What may be used inside
//
// Sleeping, channels and condition variables let the clock move. A mutex held while its holder sleeps does not, if somebody waits for
// it: then the bubble hangs. Files are fine (they block nothing for long), sockets and processes are not.
package sim
