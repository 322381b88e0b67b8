package ingress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
)

// redeliverMissed asks the forge to repeat what it could not deliver since the last look, and returns how many. A refusal there is a
// note: many tokens may not read the log of deliveries, and the branches are compared anyway. Its error is the store's.
func (s *Service) redeliverMissed(ctx context.Context, l *look, r source.Redeliverer) (int, error) {
	since := max(l.since, l.began-missedFor.Milliseconds())
	missed, err := r.Missed(ctx, time.UnixMilli(since), maxRedeliver)
	if err != nil {
		l.note = "deliveries that the forge could not make are not asked for again: " + sentence(err)
		return 0, nil
	}
	again := 0
	for _, m := range missed {
		known, err := s.knows(ctx, l.entry.row, m.GUID)
		if err != nil {
			return again, err
		}
		if known {
			continue
		}
		if err := r.Redeliver(ctx, m.ID); err != nil {
			l.note = "delivery " + m.GUID + " cannot be asked for again: " + sentence(err)
			return again, nil //nolint:nilerr // it is shown; the next look tries again
		}
		again++
		s.log.Warn("a delivery did not arrive and was asked for again", "source", l.row.Name, "event", m.Event, "guid", m.GUID, "at", m.At)
	}
	if len(missed) < maxRedeliver { // else there are more, and they come next
		l.since = max(since, l.began-2*s.d.Settings.GapEvery.Milliseconds())
	}
	return again, nil
}

// knows reports whether a delivery with the forge's id is here.
func (s *Service) knows(ctx context.Context, row db.Source, guid string) (bool, error) {
	_, err := s.d.Store.Read().DeliveryBySenderID(ctx, row.OrgID, row.RoutingKey+":"+source.Bound(guid, source.MaxIDBytes))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// RedeliverRequest asks a forge to repeat what it could not deliver in a window of time (ING-24).
type RedeliverRequest struct {
	OrgID, Source string // name, id or routing key
	Since, Until  time.Time
	DryRun        bool
}

// Redelivered is what became of a RedeliverRequest. Known ones arrived here after all and are not asked for.
type Redelivered struct {
	Matched, Known, Redelivered int
	Failed                      []FailedRedelivery
	More                        bool // there are more than maxMatched in the window
}

// FailedRedelivery is a delivery that the forge did not repeat.
type FailedRedelivery struct{ GUID, Event, Error string }

// Bounds of one request.
const (
	maxMatched       = 250
	redeliverTimeout = 50 * time.Second
)

// Redeliver asks the forge of a source to repeat what it could not deliver.
func (s *Service) Redeliver(ctx context.Context, req RedeliverRequest) (Redelivered, error) {
	var out Redelivered
	if !req.Since.Before(req.Until) {
		return out, invalid("since must be before until")
	}
	ctx, cancel := context.WithTimeout(ctx, redeliverTimeout)
	defer cancel()
	e, err := s.get(ctx, req.OrgID, req.Source)
	if err != nil {
		return out, err
	}
	src, err := e.usable()
	if err != nil {
		return out, err
	}
	r, ok := src.(source.Redeliverer)
	if !ok {
		return out, invalid("a %s keeps no log of deliveries that kici can read; missed pushes are found by comparing branches, or start one with `kici source trigger %s`", e.row.Kind, e.row.Name)
	}
	missed, err := r.Missed(ctx, req.Since, maxMatched)
	if err != nil {
		return out, fmt.Errorf("read the forge's log of deliveries: %w", s.cured(e.row, err))
	}
	out.More = len(missed) == maxMatched
	for _, m := range missed {
		if !m.At.Before(req.Until) {
			continue
		}
		out.Matched++
		if known, err := s.knows(ctx, e.row, m.GUID); err != nil {
			return out, err
		} else if known {
			out.Known++
			continue
		}
		if req.DryRun {
			continue
		}
		if err := r.Redeliver(ctx, m.ID); err != nil {
			out.Failed = append(out.Failed, FailedRedelivery{m.GUID, m.Event, sentence(err)})
			continue
		}
		out.Redelivered++
	}
	return out, nil
}
