package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Archive is the files of one commit without history, for a machine that has no git or does not reach the repository.
type Archive struct {
	Remote
	SHA     string
	Ref     string // full ref the commit was seen on, "" when unknown
	TempDir string // an existing folder; the commit is kept in it while it is read
}

// Write fetches the commit and writes its files to w as a tar. Errors are those of Checkout.Run; w may have got a part by then.
func (a Archive) Write(ctx context.Context, w io.Writer) (err error) {
	dir, err := os.MkdirTemp(a.TempDir, "archive-")
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := Checkout{Remote: a.Remote, Dir: dir, SHA: a.SHA, Ref: a.Ref, TempDir: dir}
	if err := c.get(ctx); err != nil {
		return err
	}
	// A checkout has all files as they are, whatever the repository wants to be left out of archives.
	info := filepath.Join(dir, ".git", "info")
	if err := errors.Join(os.MkdirAll(info, 0o700), os.WriteFile(filepath.Join(info, "attributes"), []byte("* -export-ignore -export-subst\n"), 0o600)); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return c.lacks(c.gitWith(ctx, Cmd{Stdout: w}, "archive", "--format=tar", c.SHA))
}
