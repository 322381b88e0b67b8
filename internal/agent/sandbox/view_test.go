//go:build linux

package sandbox

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kici-go/kici/internal/ci"
)

// machine is a file system to look at: names without their slash.
func machine(names ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for _, n := range names {
		m[n] = &fstest.MapFile{}
	}
	return m
}

func TestView(t *testing.T) {
	m := machine("usr/bin/sh", "etc/passwd", "home/me/x", "job/workspace/x", "sdk/bin/x")
	m["bin"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("usr/bin")}
	lstat := func(p string) (fs.FileInfo, error) { return m.Lstat(p[1:]) }
	readlink := func(p string) (string, error) { return m.ReadLink(p[1:]) }
	c := Config{Write: []string{"/job/workspace"}, Read: []string{"/sdk"}, Network: ci.NetworkIsolated}
	got, err := c.view(lstat, readlink)
	want := []entry{
		{path: "/bin", link: "usr/bin"}, {path: "/etc", dir: true}, {path: "/job/workspace", dir: true, write: true}, {path: "/sdk", dir: true}, {path: "/usr", dir: true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %+v", err, got)
	}
	c.Write = append(c.Write, "/nowhere")
	if _, err := c.view(lstat, readlink); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is named must be there: %v", err)
	}
}

func TestSplit(t *testing.T) {
	m := machine("opt/a/x", "opt/kici/data/key", "opt/kici/bin/kici", "opt/z/x")
	readDir := func(p string) ([]os.DirEntry, error) { return m.ReadDir(p[1:]) }
	for _, c := range []struct {
		path   string
		hidden []string
		want   []string
	}{
		{"/opt", nil, []string{"/opt"}},
		{"/opt", []string{"/opt/kici/data"}, []string{"/opt/a", "/opt/kici/bin", "/opt/z"}},
		{"/opt", []string{"/opt/kic"}, []string{"/opt/a", "/opt/kici", "/opt/z"}},
		{"/opt", []string{"/opt"}, nil},
		{"/opt/kici/data/job", []string{"/opt/kici/data"}, []string{"/opt/kici/data/job"}},
	} {
		if got := split(c.path, c.hidden, readDir); !slices.Equal(got, c.want) {
			t.Errorf("split(%s, %v) = %v, want %v", c.path, c.hidden, got, c.want)
		}
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	want := Process{Path: "/bin/sh", Argv: []string{"sh", "-c", "x"}, Dir: "/", Env: []string{"A=\xff\x00"}}
	if err := writeFrame(&b, want); err != nil {
		t.Fatal(err)
	}
	var got Process
	if err := readFrame(bytes.NewReader(b.Bytes()), maxFrame, &got); err != nil || got.Path != want.Path || !cmp.Equal(got.Argv, want.Argv) {
		t.Errorf("%+v %v", got, err)
	}
	if err := readFrame(bytes.NewReader(b.Bytes()), 10, &got); !errors.Is(err, errFrame) {
		t.Errorf("a frame over the limit: %v", err)
	}
}

// FuzzReadFrame: what a job may send to its agent is read within its bound, or refused.
func FuzzReadFrame(f *testing.F) {
	good, _ := encode(answer{Exit: &Exit{Code: 3}})
	f.Add(good)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		var a answer
		_ = readFrame(bytes.NewReader(data), maxAnswer, &a)
	})
}

func TestWithin(t *testing.T) {
	if !within("/a/b", "/a") || !within("/a", "/a") || within("/ab", "/a") || !within("/x", "/") {
		t.Error("within is wrong")
	}
}
