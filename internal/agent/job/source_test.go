package job

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tarOf(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		text := h.Uname // what the file says
		h.Uname, h.Size = "", int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestUntar(t *testing.T) {
	dir := t.TempDir()
	n, err := untar(tarOf(t,
		tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "abc"}},
		tar.Header{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o775},
		tar.Header{Typeflag: tar.TypeReg, Name: "a/tool", Mode: 0o775, Uname: "run"},
		tar.Header{Typeflag: tar.TypeReg, Name: "b/c/plain", Mode: 0o664, Uname: "text"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "a/tool"},
	), dir)
	if err != nil || n != 3 {
		t.Fatalf("%d %v", n, err)
	}
	for name, want := range map[string]os.FileMode{"a/tool": 0o755, "b/c/plain": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&0o111 != want&0o111 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "link")); err != nil || string(text) != "run" {
		t.Errorf("%q %v", text, err)
	}
}

// Nothing that a tar says leads out of the folder, and a part is not the whole.
func TestUntarStaysInside(t *testing.T) {
	outside := t.TempDir()
	whole := tarOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "x", Mode: 0o644, Uname: strings.Repeat("x", 5000)}).Bytes()
	for name, b := range map[string]*bytes.Buffer{
		"name with dots": tarOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "../x", Mode: 0o644}),
		"absolute name":  tarOf(t, tar.Header{Typeflag: tar.TypeReg, Name: outside + "/x", Mode: 0o644}),
		"through a link": tarOf(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: outside}, tar.Header{Typeflag: tar.TypeReg, Name: "l/x", Mode: 0o644}),
		"hard link":      tarOf(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"}),
		"cut off":        bytes.NewBuffer(whole[:3000]),
	} {
		if _, err := untar(b, t.TempDir()); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("outside: %v", left)
	}
}

func FuzzUntar(f *testing.F) {
	f.Add(tarOf(f, tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Mode: 0o644, Uname: "x"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, _ = untar(bytes.NewReader(data), dir)
		if left, err := os.ReadDir(outer); err != nil || len(left) != 1 {
			t.Errorf("outside: %v %v", left, err)
		}
	})
}
