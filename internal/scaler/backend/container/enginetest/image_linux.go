package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
)

// Busybox is the image that Get's engines have after Import: a shell and its tools, and nothing else.
const Busybox = "localhost/kici-busybox:1"

// Rootfs is the file system of Busybox.
var Rootfs = sync.OnceValues(func() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755},
	}
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" {
			headers = append(headers, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777})
		}
	}
	content := map[string][]byte{"bin/busybox": program, "etc/passwd": []byte("root:x:0:0::/:/bin/sh\nother:x:1000:1000::/:/bin/sh\n")}
	for _, h := range headers {
		h.Size = int64(len(content[h.Name]))
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(content[h.Name]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
})

// Import makes the Busybox image, or one like it under another name with changes in Dockerfile's words.
func (e *Engine) Import(t *testing.T, ref string, changes ...string) {
	t.Helper()
	rootfs, err := Rootfs()
	if err != nil {
		t.Fatalf("make the busybox image (package busybox-static): %v", err)
	}
	e.ImportTar(t, ref, rootfs, changes...)
}

// ImportTar makes an image of a file system.
func (e *Engine) ImportTar(t *testing.T, ref string, rootfs []byte, changes ...string) {
	t.Helper()
	if err := e.Load(t.Context(), ref, rootfs, changes...); err != nil {
		t.Fatal(err)
	}
}

// Load is ImportTar for what is no test.
func (e *Engine) Load(ctx context.Context, ref string, rootfs []byte, changes ...string) error {
	r, err := e.API.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(rootfs), SourceName: "-"}, ref, client.ImageImportOptions{Changes: changes})
	if err != nil {
		return err
	}
	defer r.Close()
	out, err := io.ReadAll(r)
	if err == nil && bytes.Contains(out, []byte(`"error"`)) {
		err = fmt.Errorf("import %s: %s", ref, out)
	}
	return err
}

// Noise is a file system with one file of this size, which nothing compresses.
func Noise(size int64) ([]byte, error) { return withFile(nil, size) }

// withFile is a file system with one file more, of noise.
func withFile(rootfs []byte, size int64) ([]byte, error) {
	var out bytes.Buffer
	out.Write(bytes.TrimRight(rootfs, "\x00"))
	out.Write(make([]byte, -out.Len()&511)) // the last file's block
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Mode: 0o644, Size: size}); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(w, rand.NewChaCha8([32]byte{1}), size); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
