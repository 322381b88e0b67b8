package git_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/git"
)

// An archive has every file of exactly that commit, whatever the repository wants to be left out, and nothing stays behind.
func TestArchive(t *testing.T) {
	dir, _ := repository(t, 1)
	sh(t, dir, `mkdir -p a/b && printf run > a/b/tool && chmod +x a/b/tool && ln -s b/tool a/link && printf '* export-ignore\nv export-subst\n' > .gitattributes &&
		echo '$Format:%H$' > v && git add -A && git commit -qm more`)
	sha := sh(t, dir, "git rev-parse HEAD")
	sh(t, dir, "echo later > file && git commit -qam later")
	temp := t.TempDir()
	var out bytes.Buffer
	if err := (git.Archive{Remote: git.Remote{URL: dir}, SHA: sha, Ref: "refs/heads/main", TempDir: temp}).Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for in := tar.NewReader(&out); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(in)
		if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeSymlink {
			got = append(got, fmt.Sprintf("%s %o %s%s", h.Name, h.Mode&0o100, strings.TrimSpace(string(text)), h.Linkname))
		}
	}
	slices.Sort(got)
	want := []string{".gitattributes 0 * export-ignore\nv export-subst", "a/b/tool 100 run", "a/link 100 b/tool", "file 0 a", "v 0 $Format:%H$"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := (git.Archive{Remote: git.Remote{URL: dir}, SHA: strings.Repeat("1", 40), TempDir: temp}).Write(context.Background(), io.Discard); !errors.Is(err, git.ErrNoCommit) {
		t.Errorf("a commit that is not there: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
