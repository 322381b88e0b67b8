package sim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// checkedLogs is how many logs of a schedule are read through the API.
const checkedLogs = 60

// verifyLogs: the log of a step that succeeded is what the step wrote, all of it, once and in order.
func (w *world) verifyLogs(pool *database) {
	found, err := rows(pool, `SELECT s.run_id, s.job_id, s.idx, j.attempt, a.agent_id FROM execution_steps s JOIN execution_jobs j ON j.id = s.job_id
		JOIN assignments a ON a.job_id = j.id AND a.attempt = j.attempt WHERE j.status = 'success' AND s.idx > 0 AND s.status = 'success' ORDER BY s.job_id, s.idx`)
	if err != nil {
		w.violate("harness", "read steps: %v", err)
		return
	}
	client := w.net.client("auditor", nil)
	defer client.CloseIdleConnections()
	for i := 0; i < len(found); i += 1 + len(found)/checkedLogs {
		r := found[i]
		want, known := w.watch.lines(r[1], r[3], r[2], r[4])
		if !known {
			continue // a liar's
		}
		got, err := readLog(client, fmt.Sprintf("http://127.0.0.1:%d/api/v1/admin/runs/%s/jobs/%s/steps/%s/logs/raw", anyPort, r[0], r[1], r[2]))
		if err != nil {
			w.violate("log", "read the log of step %s of job %s: %v", r[2], r[1], err)
			continue
		}
		var b strings.Builder
		for n := range want {
			fmt.Fprintf(&b, "%s/%s step %s line %d\n", r[1], r[3], r[2], n)
		}
		if got != b.String() {
			w.violate("log", "step %s of job %s has %q, it wrote %q", r[2], r[1], got, b.String())
		}
	}
}

func readLog(c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

// wrote notes a line of a step's log.
func (v *watch) wrote(s *script, step int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.job(s.cfg.Spec.JobID).lines[lineKey(fmt.Sprint(s.cfg.Spec.Attempt), fmt.Sprint(step), s.a.id)]++
}

func lineKey(attempt, step, agent string) string { return attempt + " " + step + " " + agent }

// lines is how many lines a step wrote on an agent.
func (v *watch) lines(job, attempt, step, agent string) (n int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.liars[job] {
		return 0, false
	}
	return v.job(job).lines[lineKey(attempt, step, agent)], true
}
