package ingress

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Bounds of filling gaps.
const (
	gapTick      = 5 * time.Second
	gapBatch     = 20 // sources in one tick
	gapParallel  = 4
	gapTimeout   = time.Minute // for one look at one forge
	gapBackoff   = time.Hour   // longest pause after failures, unless the forge says when
	maxRedeliver = 50          // deliveries asked for again in one look
	missedFor    = 72 * time.Hour
	gapSlack     = 10 * time.Minute // deliveries that came in a wrong order
)

// FillGaps looks every few minutes, and when a term of leadership begins, for what a forge did not deliver: deliveries that it
// could not make are asked for again, and a branch or tag whose tip no delivery explains in two looks becomes a delivery of
// kici's own. It runs until ctx ends.
func (s *Service) FillGaps(ctx context.Context, term int64) error {
	err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		if _, err := tx.AddSourcePolls(ctx, tx.Now()); err != nil {
			return err
		}
		_, err := tx.WakeSourcePolls(ctx, tx.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("look for missed pushes: %w", err)
	}
	loop := service.Loop{Name: "gaps", Interval: gapTick, Log: s.log, Tick: func(ctx context.Context) error { return s.lookForGaps(ctx, term) }}
	return loop.Run(ctx)
}

// lookForGaps looks until no source is due. Its error is the store's.
func (s *Service) lookForGaps(ctx context.Context, term int64) error {
	for ctx.Err() == nil {
		n, err := s.lookAtDue(ctx, term)
		if err != nil {
			return fmt.Errorf("look for missed pushes: %w", err)
		}
		if n < gapBatch {
			return nil
		}
	}
	return nil
}

// lookAtDue looks once at the sources that are due, at most gapBatch of them.
func (s *Service) lookAtDue(ctx context.Context, term int64) (int, error) {
	due, err := s.d.Store.Read().DueSourcePolls(ctx, s.d.Env.NowMs(), gapBatch)
	if err != nil {
		return 0, err
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(gapParallel)
	for _, row := range due {
		g.Go(func() error { return s.lookAt(inner, term, row) })
	}
	return len(due), g.Wait()
}

// look is one look at one source, and what it found.
type look struct {
	row     db.DueSourcePollsRow
	entry   *entry
	began   int64 // by the clock of this process
	seenAt  int64 // the same by the store's, which deliveries are received by
	moves   headMoves
	since   int64 // redeliver_since from now on
	soon    bool  // look again after GapConfirm
	heads   bool  // the heads were listed
	problem error // why the look failed
	note    string
}

// lookAt looks at one source and writes down what it found. The forge's errors are written down too.
func (s *Service) lookAt(ctx context.Context, term int64, row db.DueSourcePollsRow) error {
	l := look{row: row, began: s.d.Env.NowMs(), since: row.RedeliverSince}
	var err error
	if l.entry, err = s.byRoutingKey(ctx, row.OrgID, row.RoutingKey); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err == nil {
		err = s.examine(ctx, &l)
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err := s.startMissed(ctx, &l); err != nil {
		return err
	}
	return s.recordLook(ctx, term, l)
}

// examine asks the forge. What it answers with an error is l.problem or l.note; examine's own error is the store's.
func (s *Service) examine(ctx context.Context, l *look) error {
	reach, cancel := context.WithTimeoutCause(ctx, gapTimeout, fmt.Errorf("the forge did not answer within %s", gapTimeout))
	defer cancel()
	src, err := l.entry.usable()
	if err != nil {
		l.problem = err
		return nil
	}
	if r, ok := src.(source.Redeliverer); ok {
		again, err := s.redeliverMissed(reach, l, r)
		if err != nil && reach.Err() == nil {
			return err
		}
		l.soon = again > 0
	}
	lister, ok := src.(source.HeadLister)
	if !ok {
		return nil
	}
	err = s.d.Store.Snapshot(ctx, func(tx *store.Tx) error { l.seenAt = tx.Now(); return nil })
	if err != nil {
		return err
	}
	seen, err := lister.Heads(reach)
	if err != nil {
		l.problem = s.cured(l.entry.row, err)
		if errors.Is(err, context.DeadlineExceeded) {
			l.problem = context.Cause(reach)
		}
		return nil
	}
	known, err := s.d.Store.Read().SourceHeads(ctx, l.row.SourceID)
	if err != nil {
		return err
	}
	l.heads = true
	l.moves = compareHeads(known, seen, l.row.PolledAt == 0)
	l.soon = l.soon || len(l.moves.Suspect) > 0
	if l.moves.Note != "" {
		l.note = l.moves.Note
	}
	return s.explain(ctx, l, known)
}

// explain takes from the missed heads those that a delivery told of. While deliveries wait, nothing is called missed.
func (s *Service) explain(ctx context.Context, l *look, known []db.SourceHeadsRow) error {
	if len(l.moves.Missed) == 0 {
		return nil
	}
	q := s.d.Store.Read()
	open, err := q.OpenDeliveryOfSource(ctx, l.row.SourceID)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		l.moves.Missed, l.soon = nil, true
		return nil
	}
	recorded := map[string]int64{}
	for _, k := range known {
		recorded[k.Ref] = k.SeenAt
	}
	var missed []headAt
	for _, h := range l.moves.Missed {
		found, err := q.DeliveryForHead(ctx, db.DeliveryForHeadParams{
			OrgID: l.row.OrgID, Since: recorded[h.Ref] - gapSlack.Milliseconds(), SourceID: l.row.SourceID, Ref: h.Ref, Sha: h.SHA,
		})
		if err != nil {
			return err
		}
		if len(found) > 0 {
			l.moves.Record = append(l.moves.Record, h)
		} else {
			missed = append(missed, h)
		}
	}
	l.moves.Missed = missed
	return nil
}

// gapID is the sender's id of the delivery that kici makes for a missed push.
func gapID(ref, sha string) string {
	return source.Bound("gap:"+ref+":"+sha, source.MaxIDBytes)
}

// startMissed makes deliveries of missed pushes. What is made is recorded as seen; the rest comes with the next look.
func (s *Service) startMissed(ctx context.Context, l *look) error {
	for _, h := range l.moves.Missed {
		if full, err := s.admission.full(ctx, s.d.Store.Read(), l.entry.row.OrgID, s.d.Env.Now()); err != nil {
			return err
		} else if full {
			l.soon = true
			return nil
		}
		body, err := json.Marshal(source.Payload{Ref: h.Ref, Before: h.Was, After: h.SHA})
		if err != nil {
			return err
		}
		acc, err := s.accept(ctx, l.entry.row, source.Received{Delivery: source.Delivery{
			ID: gapID(h.Ref, h.SHA), Event: "push", Body: body,
			Headers: map[string]string{"content-type": "application/json", "x-event-type": "push", source.TriggerHeader: source.TriggerGap},
		}}, s.known())
		if err != nil {
			return err
		}
		s.log.Warn("a push was not delivered; started from what the forge has now", "source", l.row.Name, "ref", h.Ref, "sha", h.SHA, "delivery_id", acc.ID)
		l.moves.Record = append(l.moves.Record, h)
	}
	return nil
}

// recordLook writes down what a look found and when the next one is.
func (s *Service) recordLook(ctx context.Context, term int64, l look) error {
	err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		for _, h := range l.moves.Record {
			p := db.SetSourceHeadParams{SourceID: l.row.SourceID, Ref: h.Ref, Sha: h.SHA, SeenAt: l.seenAt}
			if _, err := tx.SetSourceHead(ctx, p); err != nil {
				return err
			}
		}
		for _, h := range l.moves.Suspect {
			p := db.SuspectSourceHeadParams{SourceID: l.row.SourceID, Ref: h.Ref, Sha: h.Was, Pending: h.SHA, SeenAt: l.seenAt}
			if _, err := tx.SuspectSourceHead(ctx, p); err != nil {
				return err
			}
		}
		for _, ref := range l.moves.Gone {
			if _, err := tx.DropSourceHead(ctx, l.row.SourceID, ref, l.seenAt); err != nil {
				return err
			}
		}
		_, err := tx.FinishSourcePoll(ctx, s.nextLook(l))
		return err
	})
	if errors.Is(err, store.ErrNotLeader) {
		return nil // the next leader looks again
	}
	return err
}

// nextLook is when to look again: soon after a difference, later after each failure, when the forge says so, else every GapEvery.
func (s *Service) nextLook(l look) db.FinishSourcePollParams {
	p := db.FinishSourcePollParams{SourceID: l.row.SourceID, PolledAt: l.row.PolledAt, LastError: l.note, RedeliverSince: l.since}
	if l.problem != nil {
		p.Failures, p.LastError = l.row.Failures+1, sentence(l.problem)
		p.NextAt = l.began + min(s.d.Settings.GapEvery<<min(l.row.Failures, 10), gapBackoff).Milliseconds()
		if at := source.RetryTime(l.problem); !at.IsZero() {
			p.NextAt = max(p.NextAt, min(at.UnixMilli(), l.began+maxPatience.Milliseconds()))
		}
		return p
	}
	if l.heads {
		p.PolledAt = l.began
	}
	every := s.d.Settings.GapEvery
	if l.soon {
		every = min(every, s.d.Settings.GapConfirm)
	}
	p.NextAt = l.began + (every - s.d.Env.Jitter(every/10+1)).Milliseconds() // so that sources spread
	return p
}

// repeatsGap says why a push of a forge starts nothing because kici has seen it by itself before, or the other way round. While both
// wait, the forge's gives way: its delivery ends as skipped, which does not hold up the other.
func (s *Service) repeatsGap(ctx context.Context, d *db.Delivery, ev ci.Event) (string, error) {
	if !source.OnForge(d.Kind) || ev.Type != "push" && ev.Type != "tag" {
		return "", nil
	}
	switch headersOf(*d)[source.TriggerHeader] {
	case "":
		return s.wasGap(ctx, d, ev)
	case source.TriggerGap:
		found, err := s.d.Store.Read().DeliveryForHead(ctx, db.DeliveryForHeadParams{
			OrgID: d.OrgID, Since: d.ReceivedAt - gapSlack.Milliseconds(), SourceID: d.SourceID, Ref: ev.Ref, Sha: ev.SHA,
		})
		if err == nil && len(found) > 0 && found[0] != d.ID {
			return "the forge delivered this push meanwhile: delivery " + found[0], nil
		}
		return "", err
	}
	return "", nil // somebody asked for it
}

// wasGap finds the delivery that kici made for a push, as long as nothing else came to its branch after it.
func (s *Service) wasGap(ctx context.Context, d *db.Delivery, ev ci.Event) (string, error) {
	q := s.d.Store.Read()
	gap, err := q.DeliveryBySenderID(ctx, d.OrgID, d.RoutingKey+":"+gapID(ev.Ref, ev.SHA))
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	head, err := q.SourceHead(ctx, d.SourceID, ev.Ref)
	if err != nil || gap.Status == statusFailed || gap.Status == statusSkipped || len(head) == 0 || head[0].Sha != ev.SHA {
		return "", err
	}
	return "kici starts this push by its own delivery " + gap.ID + ": this one came late, and the branch was seen before it", nil
}

func headersOf(d db.Delivery) map[string]string {
	headers := map[string]string{}
	_ = json.Unmarshal([]byte(d.Headers), &headers) // written by accept
	return headers
}
