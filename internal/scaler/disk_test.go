package scaler

import (
	"errors"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/store/storetest"
)

func TestFullDisk(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		free int64
		was  bool
		want string
	}{
		{2 * gib, false, ""}, {gib, false, ""}, {gib - 1, false, "has 1024 MiB free"}, {gib + 1, true, "free"}, {gib + gib/10, true, ""}, {-1, false, "has 0 B free"},
	} {
		if got := fullDisk("/x", c.free, gib, c.was); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// A scaler whose disk is full starts nothing and says why; its agents go on, and when there is room again so does it.
func TestScalerWithoutDisk(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), oneScaler)
	free, failed := int64(10<<30), error(nil)
	r.host.Volume = "/agents"
	r.node.d.FreeDisk = func(folder string) (int64, error) {
		if folder != "/agents" {
			t.Errorf("looked at %s", folder)
		}
		return free, failed
	}
	r.request("a")
	r.tick()
	r.register("a")
	free = 100 << 20
	r.request("b")
	r.tick()
	r.want("a", "online")
	r.want("b", "gone/withdrawn")
	rows, err := r.st.Read().NodeScalers(t.Context(), nodeID)
	if err != nil || rows[0].Ready || !strings.Contains(rows[0].NotReady, "the disk of /agents has 100 MiB free, and minFreeDisk is 256 MiB") {
		t.Errorf("%+v %v", rows, err)
	}
	free, failed = 0, errors.New("no such folder") // what cannot be measured is no problem
	r.request("c")
	r.tick()
	r.want("c", "booting")
	if rows, _ := r.st.Read().NodeScalers(t.Context(), nodeID); !rows[0].Ready {
		t.Errorf("%+v", rows)
	}
}
