package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/git"
)

// fillDirty makes a checkout of HEAD look like the working tree: what is ignored stays away, what was deleted is deleted.
func (t Tree) fillDirty(ctx context.Context, dir string, log io.Writer) error {
	if t.SHA != "" {
		c := t.checkout(Commit)
		err := git.Checkout{Dir: dir, Remote: git.Remote{URL: c.URL}, SHA: c.SHA, Ref: c.Ref, Output: log}.Run(ctx)
		if err != nil {
			return err
		}
	}
	list, err := git.Run(ctx, git.Cmd{
		Dir: t.Root, SafeDirs: []string{t.Root}, Args: []string{"ls-files", "-z", "--cached", "--others", "--exclude-standard"},
	})
	if err != nil {
		return err
	}
	o := overlay{from: t.Root, to: dir, links: map[string]bool{}, files: map[string]fs.FileMode{}}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		o.want(filepath.FromSlash(name))
	}
	if err := o.apply(ctx); err != nil {
		return fmt.Errorf("copy the working tree: %w", err)
	}
	_, err = fmt.Fprintf(log, "Copied the working tree: %d files\n", len(o.files))
	return err
}

// overlay turns one tree into the image of another. It never goes through a symbolic link: neither side's links may lead it to
// files that belong to somebody else.
type overlay struct {
	from, to string
	links    map[string]bool        // directories of from: whether the way there leads through a link
	files    map[string]fs.FileMode // regular files and links that are wanted
}

// want takes a name that git listed. What is not there, or only through a link, is not wanted; nor are submodules.
func (o *overlay) want(name string) {
	if name == "" || !filepath.IsLocal(name) || o.linked(filepath.Dir(name)) {
		return
	}
	info, err := os.Lstat(filepath.Join(o.from, name))
	if err != nil || !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return
	}
	o.files[name] = info.Mode()
}

func (o *overlay) linked(dir string) bool {
	if dir == "." {
		return false
	}
	known, ok := o.links[dir]
	if !ok {
		info, err := os.Lstat(filepath.Join(o.from, dir))
		known = err != nil || !info.IsDir() || o.linked(filepath.Dir(dir))
		o.links[dir] = known
	}
	return known
}

func (o *overlay) apply(ctx context.Context) error {
	if err := o.clear(); err != nil {
		return err
	}
	for name, mode := range o.files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := o.put(name, mode); err != nil {
			return err
		}
	}
	return nil
}

// clear removes what is not wanted.
func (o *overlay) clear() error {
	return filepath.WalkDir(o.to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(o.to, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		if _, wanted := o.files[name]; wanted {
			return nil
		}
		return os.Remove(path)
	})
}

func (o *overlay) put(name string, mode fs.FileMode) error {
	from, to := filepath.Join(o.from, name), filepath.Join(o.to, name)
	if err := o.directory(filepath.Dir(name)); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if mode&fs.ModeSymlink == 0 {
		return copyFile(from, to, mode.Perm())
	}
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// directory makes a directory and those above it; what is in the way and no directory goes.
func (o *overlay) directory(dir string) error {
	if dir == "." {
		return nil
	}
	if err := o.directory(filepath.Dir(dir)); err != nil {
		return err
	}
	at := filepath.Join(o.to, dir)
	info, err := os.Lstat(at)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		if err := os.Remove(at); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.Mkdir(at, 0o755)
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
