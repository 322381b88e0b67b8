package console

import (
	"fmt"
	"time"

	"github.com/kici-go/kici/client"
)

// Took writes a duration of ms the way people say it: 0.4s, 12s, 4m 12s, 1h 04m, 3d 2h.
func Took(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
}

// TookPtr is Took, "" for nil.
func TookPtr(ms *int64) string {
	if ms == nil {
		return ""
	}
	return Took(*ms)
}

// Ago is how long before now t was.
func (c *Console) Ago(t client.Time) string {
	d := c.Now().Sub(t.Time)
	if d < 0 {
		d = 0
	}
	if d < time.Second {
		return "now"
	}
	if d < 10*time.Second {
		d = d.Truncate(time.Second)
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	}
	return Took(d.Milliseconds()) + " ago"
}

// At is an instant in full, "" for nil.
func At(t *client.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Count is "1 job", "3 jobs".
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ShortSHA is the beginning of a commit id.
func ShortSHA(sha string) string {
	if len(sha) > 8 {
		return sha[:8]
	}
	return sha
}
