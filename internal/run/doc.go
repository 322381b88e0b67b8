// Package run is the life of runs, jobs and steps: it plans a run from a workflow and an event, makes its rows, lets jobs
// become ready as the jobs they need end, and takes every report, cancel and loss through one state machine (STM-*, NEED-*,
// CAN-*, PIPE-*).
//
// Everything that ends a job goes through one transaction (life.end, life.settle): the job, its steps and assignment, the
// lifecycle event, the jobs that become ready or are skipped by it, and the run's verdict are written together or not at
// all. Nothing is remembered outside the rows, so a crash between two transactions leaves nothing half done; Sweep finds
// what an older version or a person left behind.
//
// Each function of the life is idempotent and conditional: applied=false says that somebody else was first, which is not an
// error. They lock the run's row before they look at its jobs, in that order everywhere.
package run
