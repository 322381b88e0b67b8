package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/obs"
)

// TestScalersFollowTheirFile (CF-17): a changed file is taken up without anybody asking, a broken one changes nothing and says why, and so
// does one that comes through a folder of fragments.
func TestScalersFollowTheirFile(t *testing.T) {
	dir := t.TempDir()
	file, fragments := filepath.Join(dir, "scalers.yaml"), filepath.Join(dir, "scalers.d")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(fragments, 0o700); err != nil {
		t.Fatal(err)
	}
	const one = "version: 1\nscalers:\n  - {name: one, type: bare-metal, allowRoot: true, maxAgents: 2, labelSets: [{labels: [a]}]}\n"
	write(file, one)
	s, _ := boot(t, Options{DataDir: filepath.Join(dir, "data"), ScalerConfig: file, ScalerDir: fragments, Log: obs.Discard(), Tune: func(t *Tuning) { t.Scaler.RetireGrace = 0 }})
	wait := func(what, want string) {
		t.Helper()
		var got string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			rows, err := s.store.Read().NodeScalers(t.Context(), s.data.InstanceID())
			if err != nil {
				t.Fatal(err)
			}
			got = ""
			for _, r := range rows {
				got += r.Name + ":" + strings.Repeat("|", int(r.MaxAgents)) + " "
			}
			if got == want {
				return
			}
		}
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	wait("at the start", "one:|| ")
	write(file, strings.Replace(one, "maxAgents: 2", "maxAgents: 3", 1))
	wait("a cap", "one:||| ")
	write(filepath.Join(fragments, "two.yaml"), "scalers:\n  - {name: two, type: bare-metal, allowRoot: true, maxAgents: 1, labelSets: [{labels: [b]}]}\n")
	wait("a fragment", "one:||| two:| ")

	write(file, "version: 1\nscalers:\n  - {name: one, type: bare-metal, maxAgnets: 9}\n")
	out := s.ReloadScalers(t.Context(), false)
	if out.Applied || out.Refused != "the file is not valid" || len(out.Problems) == 0 || out.Problems[0].Line != 3 {
		t.Errorf("%+v", out)
	}
	write(file, one)
	if out := s.ReloadScalers(t.Context(), true); out.Applied || out.Refused != "" || len(out.Changes) != 2 || out.Changes[0].Fields[0].Key != "maxAgents" {
		t.Errorf("%+v", out)
	}
	wait("what is written last", "one:|| two:| ")
	if err := os.Remove(filepath.Join(fragments, "two.yaml")); err != nil {
		t.Fatal(err)
	}
	wait("a fragment that is removed", "one:|| ")
}
