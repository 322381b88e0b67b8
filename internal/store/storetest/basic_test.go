package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store"
)

func BenchmarkWrite(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			d := SQLiteDatabase(b)
			d.Config.Unsynced = false
			s := d.Open(b)
			ctx := context.Background()
			var wg sync.WaitGroup
			start := time.Now()
			next := make(chan int)
			for range clients {
				wg.Go(func() {
					for i := range next {
						if err := s.Write(ctx, func(tx *store.Tx) error { return tx.InsertOrg(ctx, fmt.Sprint("o", i), tx.Now()) }); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := 0; i < b.N; i++ {
				next <- i
			}
			close(next)
			wg.Wait()
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "tx/s")
			st := s.Stats()
			b.ReportMetric(float64(st.Writes)/float64(st.Commits), "group")
		})
	}
}

func TestBasic(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		sub := s.Subscribe(store.TopicRuns, "r")
		boom := errors.New("boom")
		if err := s.Write(ctx, func(tx *store.Tx) error {
			tx.Notify(store.TopicRuns, "r")
			_ = tx.InsertOrg(ctx, "bad", 1)
			return boom
		}); !errors.Is(err, boom) {
			t.Fatal(err)
		}
		select {
		case <-sub.C():
			t.Fatal("notified")
		default:
		}
		if err := s.Write(ctx, func(tx *store.Tx) error {
			tx.Notify(store.TopicRuns, "r")
			return tx.InsertOrg(ctx, "good", tx.Now())
		}); err != nil {
			t.Fatal(err)
		}
		<-sub.C()
		orgs, err := s.Read().Orgs(ctx)
		if err != nil || len(orgs) != 1 || orgs[0].ID != "good" {
			t.Fatal(orgs, err)
		}
		if err := s.Lead(ctx, 1, func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrNotLeader) {
			t.Fatal(err)
		}
		if err := s.Snapshot(ctx, func(tx *store.Tx) error {
			orgs, err := tx.Orgs(ctx)
			if len(orgs) != 1 {
				t.Error(orgs)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}
