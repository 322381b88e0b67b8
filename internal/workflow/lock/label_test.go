package lock

import (
	"strings"
	"testing"
)

func TestStepLabel(t *testing.T) {
	for want, s := range map[string]Step{
		"Build it":                 {Name: "Build it", Run: "make"},
		"Check out the repository": {Uses: "checkout"},
		"Run make all":             {Run: "make all\nmake check"},
		"Run go test ./...":        {Run: "\n# all tests\nset -euo pipefail\n  go test ./...\n"},
		"Run":                      {Run: "# nothing\n"},
		"Run " + strings.Repeat("é", 80) + "…":    {Run: strings.Repeat("é", 200)},
		"Run settle the bill":                     {Run: "settle the bill"},
		"${{ matrix.go }} stays as it is written": {Name: "${{ matrix.go }} stays as it is written"},
	} {
		if got := s.Label(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
