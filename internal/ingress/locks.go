package ingress

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// CacheBounds bound what is kept of commits' workflows in memory (LOCK-6). Zero fields take the spec's defaults.
type CacheBounds struct {
	Entries int
	Bytes   int64
	For     time.Duration
}

func (b CacheBounds) withDefaults() CacheBounds {
	return CacheBounds{Entries: cmp.Or(b.Entries, 500), Bytes: cmp.Or(b.Bytes, 64<<20), For: cmp.Or(b.For, time.Hour)}
}

// resolved is what a commit has under .kici. It is shared: nobody changes it.
type resolved struct {
	commit   source.Commit
	result   workflow.Result
	file     *lock.File // nil unless result is OK
	problems []workflow.Problem
	bytes    int64 // of its files
	size     int64 // in memory
}

// lockCache keeps what commits resolved to, by routing key and full commit id, so that only immutable things are in it. One
// fetch is in flight for each.
type lockCache struct {
	now    func() time.Time
	bounds CacheBounds
	flight singleflight.Group
	ctx    context.Context // of all fetches: each serves everybody who waits for it, so it does not end with the first one's
	close  context.CancelFunc

	mu    sync.Mutex
	byKey map[string]*list.Element
	order *list.List // of *cached, most recently used first
	size  int64
}

type cached struct {
	key     string
	value   *resolved
	expires time.Time
}

func newLockCache(now func() time.Time, bounds CacheBounds) *lockCache {
	ctx, cancel := context.WithCancel(context.Background())
	return &lockCache{now: now, bounds: bounds.withDefaults(), ctx: ctx, close: cancel, byKey: map[string]*list.Element{}, order: list.New()}
}

// get returns the commit's workflows. Errors are the source's (ErrNotFound: no such commit; ErrUnreachable: try again) and are
// never kept.
func (c *lockCache) get(ctx context.Context, key, sha string, src source.Source) (*resolved, error) {
	key += "\x00" + sha
	if r := c.lookup(key); r != nil {
		return r, nil
	}
	ch := c.flight.DoChan(key, func() (any, error) {
		if r := c.lookup(key); r != nil { // a flight ended between the look and here
			return r, nil
		}
		ctx, cancel := context.WithTimeout(c.ctx, fetchTimeout)
		defer cancel()
		r, err := fetch(ctx, src, sha)
		if err == nil {
			c.store(key, r)
		}
		return r, err
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case res := <-ch:
		if res.Err != nil {
			return nil, res.Err
		}
		return res.Val.(*resolved), nil //nolint:forcetypeassert // fetch returns nothing else
	}
}

const fetchTimeout = 2 * time.Minute

// fetch reads and loads the workflows of a commit. Too large is a kind of corrupt (LOCK-6).
func fetch(ctx context.Context, src source.Source, sha string) (*resolved, error) {
	commit, err := src.Resolve(ctx, sha)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", sha, err)
	}
	r := &resolved{commit: commit, size: 1 << 10}
	files, err := src.Files(ctx, commit.SHA)
	if errors.Is(err, source.ErrTooLarge) {
		r.tooLarge(err.Error())
		return r, nil
	} else if err != nil {
		return nil, fmt.Errorf("workflows of %s: %w", sha, err)
	}
	sources := make([]workflow.Source, len(files))
	for i, f := range files {
		sources[i] = workflow.Source{Path: f.Path, Mode: f.Mode, Data: f.Data}
		r.bytes += int64(len(f.Data))
	}
	r.size += 4 * r.bytes // decoded, it takes several times its text
	r.file, r.result, r.problems = workflow.Load(sources)
	return r, nil
}

func (r *resolved) tooLarge(why string) {
	r.result, r.file = workflow.Corrupt, nil
	r.problems = []workflow.Problem{{File: workflow.Dir, Message: why, Cure: "make the files smaller"}}
}

// workflows returns what a commit has under .kici, as lockCache.get does. What is larger than the cluster admits now is corrupt.
func (s *Service) workflows(ctx context.Context, routingKey, sha string, src source.Source) (*resolved, error) {
	r, err := s.locks.get(ctx, routingKey, sha, src)
	if limit := s.limits().LockBytes; err == nil && r.bytes > limit {
		large := *r
		large.tooLarge(fmt.Sprintf("the workflow files have %d bytes together, more than lockFileMaxBytes, %d", r.bytes, limit))
		return &large, nil
	}
	return r, err
}

func (c *lockCache) lookup(key string) *resolved {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[key]
	if e == nil {
		return nil
	}
	found := e.Value.(*cached) //nolint:forcetypeassert // the list holds nothing else
	if c.now().After(found.expires) {
		c.drop(e)
		return nil
	}
	c.order.MoveToFront(e)
	return found.value
}

func (c *lockCache) store(key string, r *resolved) {
	if r.size > c.bounds.Bytes/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		c.drop(e)
	}
	c.byKey[key] = c.order.PushFront(&cached{key: key, value: r, expires: c.now().Add(c.bounds.For)})
	c.size += r.size
	for len(c.byKey) > c.bounds.Entries || c.size > c.bounds.Bytes {
		c.drop(c.order.Back())
	}
}

func (c *lockCache) drop(e *list.Element) {
	old := c.order.Remove(e).(*cached) //nolint:forcetypeassert // the list holds nothing else
	delete(c.byKey, old.key)
	c.size -= old.value.size
}
