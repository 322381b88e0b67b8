package git

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressIsThrottledAndTheRestIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, time.Now, func(s string) string { return strings.ReplaceAll(s, "token", "***") })
		for i := range 100 { // 20 s
			line := []byte("Receiving objects:  " + string(rune('0'+i/10)) + "% (1/2)\r")
			_, _ = p.Write(line[:7])
			_, _ = p.Write(line[7:])
			time.Sleep(200 * time.Millisecond)
		}
		for _, s := range []string{
			"remote: Enumerating objects: 12, done.\n", "remote: Total 12 (delta 1)\n", "From http://x/y\n", " * [new ref] a -> b\n",
			"warning: your token is old\n", "fatal: end",
		} {
			_, _ = p.Write([]byte(s))
		}
		p.Flush()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		progress := 0
		for _, l := range lines {
			if isProgress(l) {
				progress++
			}
		}
		if progress < 3 || progress > 4 {
			t.Errorf("%d lines of progress in 20 s:\n%s", progress, out.String())
		}
		if rest := strings.Join(lines[progress:], "|"); rest != "warning: your *** is old|fatal: end" {
			t.Errorf("the rest is %q", rest)
		}
	})
}

func TestGitVersionsThatKnowNoLazyFetch(t *testing.T) {
	for version, want := range map[string]bool{
		"git version 2.34.1": false, "git version 2.39.3": false, "git version 2.39.5": true, "git version 2.43.0": false,
		"git version 2.43.4 (Apple Git-1)": true, "git version 2.47.1.windows.1": true, "git version 3.0": true, "git": false,
	} {
		if got := knowsNoLazyFetch(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}

func FuzzParseRefs(f *testing.F) {
	sha := strings.Repeat("ab", 20)
	f.Add([]byte("ref: refs/heads/main\tHEAD\n" + sha + "\tHEAD\n" + sha + "\trefs/tags/v1\n" + sha + "\trefs/tags/v1^{}\n"))
	f.Add([]byte("<html>\t\n" + sha + "\n\trefs/heads/x\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		refs, head := parseRefs(out)
		for name, sha := range refs {
			if CheckRef(name) != nil || CheckSHA(sha) != nil {
				t.Fatalf("accepted %q %q", name, sha)
			}
		}
		if head != "" && CheckRef(head) != nil {
			t.Fatalf("accepted HEAD %q", head)
		}
	})
}
