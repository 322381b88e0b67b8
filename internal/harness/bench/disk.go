package main

import (
	"os"
	"time"

	"github.com/kici-go/kici/client"
)

func deliveriesOf(source string) client.DeliveryQuery {
	return client.DeliveryQuery{Source: source, Limit: 1}
}

// writeRate is what the disk takes: 64 MB written and synced, in MB/s.
func writeRate(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "write")
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	block := make([]byte, 1<<20)
	t := time.Now()
	for range 64 {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return 64 * 1.048576 / time.Since(t).Seconds(), nil
}
