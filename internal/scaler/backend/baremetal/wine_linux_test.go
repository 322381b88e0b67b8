package baremetal

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestUnderWine runs the tests of Windows, this room's and those of the agent's steps, where scripts/wine.sh --make has been run.
func TestUnderWine(t *testing.T) {
	root := os.Getenv("WINE_ROOT")
	if root == "" {
		root = "/var/cache/kici-wine"
	}
	if _, err := os.Stat(filepath.Join(root, ".made")); err != nil || os.Geteuid() != 0 {
		require(t, "wine", "Windows programs cannot be run here: as root, scripts/wine.sh --make", err)
	}
	script, err := filepath.Abs("../../../../scripts/wine.sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // the first time compiles the standard library
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=3m", "-exec", script, ".", "../../../agent/exec")
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
