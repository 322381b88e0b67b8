package exec

import (
	"encoding/json"
	"fmt"
	"os"
)

// State is the content of a state file: what it takes to end the processes of a job whose agent is dead.
type State struct {
	JobID     string `json:"jobId"`
	Method    string `json:"method"`
	Cgroup    string `json:"cgroup,omitempty"` // absolute path of the job's leaf
	Pid       int    `json:"pid"`              // the agent
	StartTime uint64 `json:"startTime"`        // its start, field 22 of /proc/<pid>/stat
	Marker    string `json:"marker"`           // in the environment of every process of the job
}

func (t *Tree) writeState() error {
	if t.opts.StateFile == "" {
		return nil
	}
	s := State{JobID: t.opts.JobID, Method: t.Method(), Pid: os.Getpid(), Marker: markers(t.opts.JobID, anyStep)[0]}
	s.StartTime = StartTime(s.Pid)
	if t.group != nil {
		s.Cgroup = t.group.path
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write job state: %w", err)
	}
	if err := os.WriteFile(t.opts.StateFile, data, 0o600); err != nil {
		return fmt.Errorf("write job state: %w", err)
	}
	return nil
}

// ReadState reads a state file.
func ReadState(path string) (State, error) {
	var s State
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read job state: %w", err)
	}
	return s, nil
}
