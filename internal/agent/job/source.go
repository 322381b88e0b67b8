package job

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/kici-go/kici/internal/git"
)

// needsSource says why git cannot fetch the commit here, "" when it can. The files then come from the server, as in an image that has no
// git, or for a repository that is a folder of the server's machine.
func (j *Job) needsSource() string {
	if j.cfg.Source == nil {
		return ""
	}
	if !git.Available() {
		return "there is no git here"
	}
	if dir := git.LocalPath(j.cfg.Spec.Checkout.URL); dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return "the repository is a folder of the server's machine"
		}
	}
	return ""
}

// unpack puts the files of the commit into the workspace, without history.
func (j *Job) unpack(ctx context.Context, why string, log io.Writer) error {
	fmt.Fprintf(log, "Fetching the files of %s from the server: %s. There is no history, and no .git.\n", j.cfg.Spec.Checkout.SHA, why)
	from, err := j.cfg.Source(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	n, err := untar(from, j.workspace())
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	fmt.Fprintf(log, "Files: %d\n", n)
	return nil
}

// untar writes what git archive makes, folders, files and links, below an existing folder. Nothing is written outside of it, whatever the
// names and links say.
func untar(from io.Reader, into string) (files int, err error) {
	root, err := os.OpenRoot(into)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for in := tar.NewReader(from); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, err
		}
		if err := untarOne(root, h, in); err != nil {
			return files, fmt.Errorf("%q: %w", h.Name, err)
		}
		if h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeXGlobalHeader {
			files++
		}
	}
}

func untarOne(root *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeXGlobalHeader: // the id of the commit
		return nil
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("a thing of type %q", h.Typeflag)
	}
	mode := os.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
