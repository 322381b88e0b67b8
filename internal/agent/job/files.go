package job

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/agent/envfile"
	"github.com/kici-go/kici/internal/agent/spool"
)

// commandFiles are the files by which one attempt of a step talks back.
type commandFiles struct{ output, env, path, summary string }

func (f commandFiles) all() []string { return []string{f.output, f.env, f.path, f.summary} }

func (f commandFiles) remove() {
	for _, p := range f.all() {
		_ = os.Remove(p)
	}
}

func (j *Job) newCommandFiles(index int) (commandFiles, error) {
	prefix := j.path("temp", "step-"+strconv.Itoa(index)+".")
	f := commandFiles{prefix + "output", prefix + "env", prefix + "path", prefix + "summary"}
	for _, p := range f.all() {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			return f, fmt.Errorf("make a file for the step: %w", err)
		}
	}
	return f, nil
}

// collect reads what the step wrote: its outputs, and the variables and paths of the steps after it.
func (j *Job) collect(f commandFiles, log *spool.Step) (outputs map[string]any, err error) {
	data, err := envfile.Read(f.output)
	if err != nil {
		return nil, fmt.Errorf("KICI_OUTPUT %w", err)
	}
	pairs, err := envfile.Parse("KICI_OUTPUT", data)
	if err != nil {
		return nil, err
	}
	outputs = map[string]any{}
	for _, p := range pairs {
		outputs[p.Name] = p.Value
	}
	if err := j.collectEnv(f); err != nil {
		return outputs, err
	}
	j.showSummary(f, log)
	return outputs, nil
}

func (j *Job) collectEnv(f commandFiles) error {
	data, err := envfile.Read(f.env)
	if err != nil {
		return fmt.Errorf("KICI_ENV %w", err)
	}
	pairs, err := envfile.Parse("KICI_ENV", data)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if err := envfile.CheckEnv(p); err != nil {
			return fmt.Errorf("KICI_ENV: %w", err)
		}
	}
	if data, err = envfile.Read(f.path); err != nil {
		return fmt.Errorf("KICI_PATH %w", err)
	}
	dirs, err := envfile.ParsePath(data)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		j.env[p.Name] = p.Value
	}
	for _, d := range dirs {
		j.paths = append([]string{d}, j.paths...)
	}
	return nil
}

// maxSummaryShown bounds how much of a summary goes into the log, which is where it is shown for now.
const maxSummaryShown = 64 << 10

func (j *Job) showSummary(f commandFiles, log *spool.Step) {
	data, err := envfile.Read(f.summary)
	if err != nil || len(data) == 0 {
		return
	}
	text := j.mask.String(string(data[:min(len(data), maxSummaryShown)]))
	log.Notice("Summary of the step:")
	for line := range strings.Lines(text) {
		log.Notice("%s", strings.TrimRight(line, "\r\n"))
	}
	if len(data) > maxSummaryShown {
		log.Notice("(the summary is %d bytes long; the rest is not shown)", len(data))
	}
}
