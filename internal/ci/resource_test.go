package ci

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"512m": 512 << 20, "1g": 1 << 30, "1.5G": 3 << 29, " 64k ": 64 << 10, "0.5k": 512,
		"": 0, "m": 0, "12": 0, "-1g": 0, "0m": 0, "1t": 0, "nang": 0, "infg": 0, "1e30g": 0, "512mb": 0,
	} {
		got, err := ParseMemory(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add("512m")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseMemory(s); err == nil && (n < 0 || n > 1<<50) {
			t.Errorf("%q is %d bytes", s, n)
		}
	})
}

func TestParseCPUs(t *testing.T) {
	for cpus, want := range map[float64]int64{0.5: 500, 1: 1000, 256: 256000, 0.0001: 1, 0: 0, -1: 0, 257: 0, math.Inf(1): 0} {
		if got, err := ParseCPUs(cpus); got != want || (err == nil) != (want > 0) {
			t.Errorf("%v: %d %v, want %d", cpus, got, err, want)
		}
	}
	if _, err := ParseCPUs(math.NaN()); err == nil {
		t.Error("NaN CPUs")
	}
}

// Each field of a claim comes from the first layer that declares it (SC-23).
func TestClaimOr(t *testing.T) {
	job := Claim{Requests: Resources{CPUMilli: 100}}
	set := Claim{Requests: Resources{CPUMilli: 200, MemBytes: 1 << 20}, Limits: Resources{MemBytes: 2 << 20}}
	want := Claim{Requests: Resources{CPUMilli: 100, MemBytes: 1 << 20}, Limits: Resources{MemBytes: 2 << 20}}
	if got := job.Or(set); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNormalizeLabels(t *testing.T) {
	if got, want := NormalizeLabels([]string{" Linux", "gpu", "", "LINUX"}), []string{"gpu", "linux"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.StringMatching(`[ a-cA-C]{0,3}`)).Draw(t, "labels")
		once := NormalizeLabels(in)
		if !slices.Equal(once, NormalizeLabels(once)) || !slices.IsSorted(once) {
			t.Fatalf("%q became %q", in, once)
		}
	})
}

func TestPlatformLabels(t *testing.T) {
	for _, c := range []struct {
		goos, goarch string
		want         []string
	}{
		{"linux", "amd64", []string{"kici:os:linux", "kici:arch:x64", "kici:arch:amd64"}},
		{"darwin", "arm64", []string{"kici:os:macos", "kici:os:darwin", "kici:arch:arm64"}},
		{"windows", "amd64", []string{"kici:os:windows", "kici:os:win32", "kici:arch:x64", "kici:arch:amd64"}},
	} {
		if got := PlatformLabels(c.goos, c.goarch); !slices.Equal(got, c.want) {
			t.Errorf("%s/%s: %q", c.goos, c.goarch, got)
		}
	}
}
