package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/git"
)

// checkout puts the run's commit into the workspace, once.
func (j *Job) checkout(ctx context.Context, log *spool.Step) error {
	c := j.cfg.Spec.Checkout
	switch {
	case c == nil:
		log.Notice("Nothing to check out: the run has no repository.")
		return nil
	case j.checked:
		log.Notice("%s is checked out already.", c.SHA)
		return nil
	}
	out := j.newOutput(log, "stdout")
	defer out.Close()
	if err := j.fill(ctx, out); err != nil {
		return fmt.Errorf("check out %s: %w%s", c.SHA, err, cureOfCheckout(err))
	}
	j.checked = true
	j.noticeLeftOut(log)
	return nil
}

// fill puts the repository into the workspace.
func (j *Job) fill(ctx context.Context, log io.Writer) error {
	if j.cfg.Fill != nil {
		return j.cfg.Fill(ctx, j.workspace(), log)
	}
	c := j.cfg.Spec.Checkout
	if why := j.needsSource(); why != "" {
		return j.unpack(ctx, why, log)
	}
	return git.Checkout{
		Remote: git.Remote{URL: c.URL, Username: c.Username, Password: c.Password, SSHKey: c.SSHKey, KnownHosts: c.KnownHosts},
		Dir:    j.workspace(), SHA: c.SHA, Ref: c.Ref, TempDir: j.path("temp"), Output: log,
	}.Run(ctx)
}

// cureOfCheckout says who can help; git.ErrHostKey says it itself.
func cureOfCheckout(err error) string {
	if errors.Is(err, git.ErrDenied) {
		return ". Give the source a credential that may read the repository: kici source set-token NAME"
	}
	return ""
}

// noticeLeftOut says what a checkout does not bring, where the repository wants it. A file that is no plain file says nothing.
func (j *Job) noticeLeftOut(log *spool.Step) {
	const alone = "The source's credential is not there for steps: what is private needs one from ${{ secrets }}."
	if j.firstBytes(".gitmodules") != nil {
		log.Notice("Submodules are not fetched. To have them: git submodule update --init --recursive, in a step. %s", alone)
	}
	if bytes.Contains(j.firstBytes(".gitattributes"), []byte("filter=lfs")) {
		log.Notice("Files under Git LFS are pointers, not their content. To have it: git lfs pull, in a step. %s", alone)
	}
}

// firstBytes of a plain file of the workspace, at most 1 MiB; nil when there is none.
func (j *Job) firstBytes(name string) []byte {
	path := filepath.Join(j.workspace(), name)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil
	}
	return append([]byte{}, data...)
}
