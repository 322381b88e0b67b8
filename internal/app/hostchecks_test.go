package app

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/cli/doctorcmd"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/diagnose"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
)

// hostFindings asks everything about one data directory.
func hostFindings(t *testing.T, h doctorcmd.Host) map[string]diagnose.Result {
	t.Helper()
	out := map[string]diagnose.Result{}
	for _, r := range diagnose.Run(t.Context(), hostChecks(h), time.Minute).Checks {
		out[r.Name] = r
	}
	return out
}

func TestDoctorOfADataDirectory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks at modes and locks as Linux has them")
	}
	db := storetest.SQLiteDatabase(t)
	dir := db.Config.Dir
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := cluster.OpenDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(secret.KeyFile, "k", 0o600)
	write(scalerFile, "version: 1\nscalers:\n  - name: local\n    type: bare-metal\n    maxAgents: many\n", 0o600)
	got := hostFindings(t, doctorcmd.Host{DataDir: dir, Environ: []string{"KICI_URL=x", "KICI_DATA_DRI=y"}})
	for name, want := range map[string]string{
		"data directory": "in use by process", "master key": "keep a copy", "scalers.yaml": scalerFile + ":3:5:", "environment": "KICI_DATA_DRI", "database": "sqlite, schema version",
	} {
		if !strings.Contains(got[name].Message, want) {
			t.Errorf("%s: %+v", name, got[name])
		}
	}
	for name, want := range map[string]diagnose.Status{"data directory": diagnose.Pass, "master key": diagnose.Pass, "scalers.yaml": diagnose.Fail, "environment": diagnose.Fail, "database": diagnose.Pass} {
		if got[name].Status != want {
			t.Errorf("%s: %+v", name, got[name])
		}
	}
	_ = os.Chmod(filepath.Join(dir, secret.KeyFile), 0o644)
	_ = os.Chmod(dir, 0o755)
	got = hostFindings(t, doctorcmd.Host{DataDir: dir})
	if got["master key"].Status != diagnose.Fail || !strings.Contains(got["master key"].Cure, "chmod 600") || got["data directory"].Status != diagnose.Warn {
		t.Errorf("%+v\n%+v", got["master key"], got["data directory"])
	}
}

func TestDoctorWithoutAnything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for name, r := range hostFindings(t, doctorcmd.Host{DataDir: dir}) {
		if r.Status != diagnose.Skip && name != "environment" {
			t.Errorf("%+v", r)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the doctor made the directory")
	}
	if r := hostFindings(t, doctorcmd.Host{DataDir: dir, DatabaseURL: "postgres://nobody@127.0.0.1:1/none"})["database"]; r.Status != diagnose.Fail || r.Cure == "" {
		t.Errorf("%+v", r)
	}
}

func TestProbeChangesNothing(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		p, err := store.Probe(t.Context(), d.Config)
		if err != nil || p.Schema != p.Wanted || p.Wanted == 0 || time.Until(time.UnixMilli(p.NowMs)).Abs() > time.Hour {
			t.Errorf("%+v %v", p, err)
		}
		if d.Config.URL == "" { // no -wal, no -shm of its own
			if files, _ := os.ReadDir(d.Config.Dir); len(files) != 1 {
				t.Errorf("%v", files)
			}
		}
	})
}
