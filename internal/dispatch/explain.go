package dispatch

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// explain stores why each shape waits, where that has changed (D30), and starts or clears the unroutable clock of its jobs
// (QUE-14).
func (p *placer) explain(ctx context.Context, v view, reasons []placement.ShapeReasons) error {
	if err := p.loadReasons(ctx); err != nil {
		return err
	}
	marked := make(map[string]db.DispatchShapesRow, len(v.shapes))
	for _, row := range v.shapes {
		marked[row.Shape] = row
	}
	changed := map[string]string{} // '' = drop
	var clocks []placement.ShapeReasons
	for shape := range p.reasons {
		if _, waits := marked[shape]; !waits {
			changed[shape] = ""
		}
	}
	for _, r := range reasons {
		text := reasonsText(r.Reasons)
		if p.reasons[r.Shape] != text {
			changed[r.Shape] = text
		}
		row := marked[r.Shape]
		if r.Routable && row.Marked > 0 || !r.Routable && row.Marked < row.Total {
			clocks = append(clocks, r)
		}
	}
	if len(changed) == 0 && len(clocks) == 0 {
		return nil
	}
	err := p.lead(ctx, func(tx *store.Tx) error {
		if err := writeReasons(ctx, tx, changed); err != nil {
			return err
		}
		if err := p.logReasons(ctx, tx, changed); err != nil {
			return err
		}
		return writeClocks(ctx, tx, clocks)
	})
	if err != nil {
		return err
	}
	if len(clocks) > 0 {
		p.counted = nil // the clocks are part of the count
	}
	p.keep(changed)
	return nil
}

func reasonsText(reasons []placement.Reason) string {
	if reasons == nil {
		reasons = []placement.Reason{}
	}
	b, _ := json.Marshal(reasons) // our own struct always encodes
	return string(b)
}

func (p *placer) loadReasons(ctx context.Context) error {
	if p.reasons != nil {
		return nil
	}
	rows, err := p.d.Store.Read().DispatchReasons(ctx)
	if err != nil {
		return err
	}
	p.reasons = make(map[string]string, len(rows))
	for _, r := range rows {
		p.reasons[r.Shape] = r.Reasons
	}
	return nil
}

func writeReasons(ctx context.Context, tx *store.Tx, changed map[string]string) error {
	for shape, text := range changed {
		var err error
		if text == "" {
			err = tx.DispatchDropReasons(ctx, shape)
		} else {
			err = tx.DispatchPutReasons(ctx, shape, text, tx.Now())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeClocks(ctx context.Context, tx *store.Tx, clocks []placement.ShapeReasons) error {
	for _, r := range clocks {
		var err error
		if r.Routable {
			_, err = tx.DispatchClearUnroutable(ctx, r.Shape)
		} else {
			_, err = tx.DispatchMarkUnroutable(ctx, r.Shape, sql.NullInt64{Int64: tx.Now(), Valid: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expire ends jobs that have waited past their deadline, or past the grace of one that nobody could ever run (QUE-3, QUE-14).
// The claim and the job's end are one transaction, conditional on the job still waiting without an agent (QUE-15, XC-85).
func (p *placer) expire(ctx context.Context, v view) error {
	now := v.snapshot.Now
	before := p.unroutableBefore(now)
	for _, row := range v.shapes {
		late := row.DeadlineAt > 0 && row.DeadlineAt <= now
		hopeless := row.UnroutableSince > 0 && row.UnroutableSince <= before
		if !late && !hopeless {
			continue
		}
		p.counted = nil
		err := p.lead(ctx, func(tx *store.Tx) error { return p.expireShape(ctx, tx, row.Shape) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *placer) unroutableBefore(now int64) int64 {
	grace := p.d.limits().UnroutableGrace
	if grace <= 0 {
		return 0
	}
	return now - grace.Milliseconds()
}

func (p *placer) expireShape(ctx context.Context, tx *store.Tx, shape string) error {
	now := tx.Now()
	due, err := tx.DispatchDueWaiting(ctx, shape, now, p.unroutableBefore(now))
	if err != nil {
		return err
	}
	for _, j := range due {
		end := waitEnd(j, now)
		end.JobID, end.OnlyWaiting = j.ID, true
		if _, err := p.d.Runs.EndJob(tx, end); err != nil {
			return err
		}
	}
	return nil
}

// waitEnd says how a job that waited too long ends: unroutable when nobody could ever run it, timed out otherwise; a recorded
// provisioning error takes precedence and makes it the latter (QUE-14).
func waitEnd(j db.DispatchDueWaitingRow, now int64) JobEnd {
	waited := (time.Duration(now-j.QueuedAt.Int64) * time.Millisecond).Round(time.Second)
	switch {
	case j.ProvisioningError != "":
		return JobEnd{Status: ci.JobStale, InitFailure: "no_agent", FailureClass: "never_started", Error: fmt.Sprintf(
			"no agent could be started for it within %s: %s", waited, j.ProvisioningError)}
	case j.UnroutableSince.Valid:
		return JobEnd{Status: ci.JobUnroutable, InitFailure: "no_agent", FailureClass: "never_started", Error: fmt.Sprintf(
			"no agent and no scaler can run it: it asks for %s", selector(j.Labels, j.ExcludeLabels))}
	}
	return JobEnd{Status: ci.JobStale, InitFailure: "no_agent", FailureClass: "never_started", Error: fmt.Sprintf(
		"no agent was free for it within %s", waited)}
}

// selector names labels as people write them: "linux, gpu but not spot".
func selector(labels, exclude string) string {
	var want, not []string
	_ = json.Unmarshal([]byte(labels), &want) // our own JSON
	_ = json.Unmarshal([]byte(exclude), &not)
	text := "any agent"
	if len(want) > 0 {
		text = "the labels " + strings.Join(want, ", ")
	}
	if len(not) > 0 {
		text += " without " + strings.Join(not, ", ")
	}
	return text
}
