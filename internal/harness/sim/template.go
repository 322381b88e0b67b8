package sim

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/kici-go/kici/internal/store"
)

const templateName = "template.db"

// guards are triggers that watch what no row may do at any instant, whoever writes it, and note it down.
const guards = `
CREATE TABLE sim_violations (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TRIGGER sim_job_final AFTER UPDATE OF status ON execution_jobs
WHEN OLD.finished_at IS NOT NULL AND (NEW.status <> OLD.status OR NEW.finished_at IS NULL) BEGIN
  INSERT INTO sim_violations (text) VALUES ('final: job ' || NEW.id || ' went from ' || OLD.status || ' to ' || NEW.status);
END;
CREATE TRIGGER sim_run_final AFTER UPDATE OF status ON execution_runs
WHEN OLD.finished_at IS NOT NULL AND (NEW.status <> OLD.status OR NEW.finished_at IS NULL) BEGIN
  INSERT INTO sim_violations (text) VALUES ('final: run ' || NEW.id || ' went from ' || OLD.status || ' to ' || NEW.status);
END;
CREATE TRIGGER sim_cap AFTER INSERT ON agents WHEN NEW.scaler <> '' BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'cap: scaler ' || s.name || ' of ' || s.max_agents || ' exceeded by agent ' || NEW.id FROM scalers s
  WHERE s.node_id = NEW.node_id AND s.name = NEW.scaler
    AND (SELECT COUNT(*) FROM agents a WHERE a.node_id = NEW.node_id AND a.scaler = NEW.scaler AND a.state <> 'gone') > s.max_agents;
  INSERT INTO sim_violations (text)
  SELECT 'cap: node of ' || i.global_max_agents || ' exceeded by agent ' || NEW.id FROM cluster_instances i
  WHERE i.instance_id = NEW.node_id AND i.global_max_agents > 0
    AND (SELECT COUNT(*) FROM agents a WHERE a.node_id = NEW.node_id AND a.state <> 'gone') > i.global_max_agents;
  INSERT INTO sim_violations (text)
  SELECT 'drain: agent ' || NEW.id || ' is to be started on ' || i.instance_id || ', which drains' FROM cluster_instances i
  WHERE i.instance_id = NEW.node_id AND i.draining;
  INSERT INTO sim_violations (text)
  SELECT 'backoff: agent ' || NEW.id || ' is to be started by ' || b.scaler || ', which backs off until ' || b.until_at FROM scaler_backoffs b
  WHERE b.node_id = NEW.node_id AND b.scaler = NEW.scaler AND b.until_at > NEW.requested_at;
END;
CREATE TRIGGER sim_gone AFTER UPDATE OF state ON agents WHEN OLD.state = 'gone' AND NEW.state <> 'gone' AND NEW.type <> 'static' BEGIN
  INSERT INTO sim_violations (text) VALUES ('final: agent ' || NEW.id || ' came back from gone');
END;
CREATE TRIGGER sim_withdraw AFTER UPDATE OF state ON agents
WHEN NEW.state = 'ending' AND OLD.state <> 'ending' AND NEW.gone_reason IN ('idle', 'made-room', 'withdrawn') BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'withdraw: agent ' || NEW.id || ' is ended as ' || NEW.gone_reason || ' and has job ' || a.job_id FROM assignments a
  WHERE a.agent_id = NEW.id AND a.ended_at IS NULL;
END;
CREATE TRIGGER sim_delivery_final AFTER UPDATE OF status ON deliveries WHEN OLD.status = 'processed' AND NEW.status <> 'processed' BEGIN
  INSERT INTO sim_violations (text) VALUES ('final: delivery ' || NEW.id || ' went from processed to ' || NEW.status);
END;
CREATE TRIGGER sim_assign AFTER INSERT ON assignments BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'assign: job ' || NEW.job_id || ' given out although it had started' FROM execution_jobs j
  WHERE j.id = NEW.job_id AND j.started_at IS NOT NULL;
  INSERT INTO sim_violations (text)
  SELECT 'assign: job ' || NEW.job_id || ' given to agent ' || NEW.agent_id || ', which is ' || a.state || ' and not there' FROM agents a
  WHERE a.id = NEW.agent_id AND (a.state <> 'online' OR a.draining OR a.session_id = '' OR a.link_lost_at IS NOT NULL);
  INSERT INTO sim_violations (text)
  SELECT 'assign: job ' || NEW.job_id || ' given to agent ' || NEW.agent_id || ', which has job ' || a.job_id FROM assignments a
  WHERE a.agent_id = NEW.agent_id AND a.ended_at IS NULL AND a.job_id <> NEW.job_id;
  INSERT INTO sim_violations (text)
  SELECT 'drain: job ' || NEW.job_id || ' given to agent ' || a.id || ', whose server drains' FROM agents a JOIN cluster_instances i
    ON i.instance_id = CASE WHEN a.node_id <> '' THEN a.node_id ELSE a.instance_id END
  WHERE a.id = NEW.agent_id AND i.draining AND COALESCE(a.bound_job_id, '') <> NEW.job_id;
END;
CREATE TRIGGER sim_needs AFTER UPDATE OF status ON execution_jobs WHEN OLD.status = 'pending' AND NEW.status IN ('queued', 'held') BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'needs: job ' || NEW.id || ' is ' || NEW.status || ' and needs ' || u.id || ', which is ' || u.status
  FROM execution_job_needs n JOIN execution_jobs u ON u.id = n.needs_id WHERE n.job_id = NEW.id AND u.finished_at IS NULL;
END;
CREATE TRIGGER sim_wave AFTER UPDATE OF started_at ON execution_jobs WHEN NEW.started_at IS NOT NULL AND OLD.started_at IS NULL BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'wave: ' || f.base_name || ' of run ' || f.run_id || ' has more than ' || f.max_parallel || ' at once' FROM fanouts f
  WHERE f.run_id = NEW.run_id AND f.base_name = NEW.base_name AND f.max_parallel > 0
    AND (SELECT COUNT(*) FROM execution_jobs j WHERE j.run_id = NEW.run_id AND j.base_name = NEW.base_name
      AND j.started_at IS NOT NULL AND j.finished_at IS NULL) > f.max_parallel;
END;
CREATE TRIGGER sim_groups_in AFTER INSERT ON concurrency_slots WHEN NEW.state = 'active' BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'group: ' || NEW.group_key || ' holds more than ' || NEW.max
  WHERE (SELECT COUNT(*) FROM concurrency_slots s WHERE s.org_id = NEW.org_id AND s.routing_key = NEW.routing_key
    AND s.group_key = NEW.group_key AND s.state = 'active') > NEW.max;
END;
CREATE TRIGGER sim_groups_up AFTER UPDATE OF state ON concurrency_slots WHEN NEW.state = 'active' AND OLD.state <> 'active' BEGIN
  INSERT INTO sim_violations (text)
  SELECT 'group: ' || NEW.group_key || ' holds more than ' || NEW.max
  WHERE (SELECT COUNT(*) FROM concurrency_slots s WHERE s.org_id = NEW.org_id AND s.routing_key = NEW.routing_key
    AND s.group_key = NEW.group_key AND s.state = 'active') > NEW.max;
END;
`

var template struct {
	sync.Mutex
	data []byte
}

// makeTemplate puts a migrated, guarded, empty database into dir. It is made once by a process, outside of any bubble.
func makeTemplate(dir string) error {
	template.Lock()
	defer template.Unlock()
	if template.data == nil {
		data, err := migrated(dir)
		if err != nil {
			return err
		}
		template.data = data
	}
	return os.WriteFile(filepath.Join(dir, templateName), template.data, 0o600)
}

func migrated(dir string) (data []byte, err error) {
	tmp, err := os.MkdirTemp(dir, "template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	st, err := store.Open(context.Background(), store.Config{Dir: tmp, Unsynced: true})
	if err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil {
		return nil, err
	}
	path := filepath.Join(tmp, store.FileName)
	pool, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return nil, err
	}
	_, err = pool.ExecContext(context.Background(), guards)
	if err == nil {
		_, err = pool.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err = errors.Join(err, pool.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
