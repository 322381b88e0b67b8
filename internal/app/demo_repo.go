package app

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/git"
)

//go:embed all:demo/shop
var demoFiles embed.FS

// demoRepository is the example: a bare repository that kici watches, and a clone to work in.
type demoRepository struct{ bare, work string }

var demoAuthor = []string{
	"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org",
}

// makeDemoRepository makes the repositories in dir, or takes those of an earlier demo, and registers the bare one as a
// source whose hook tells the server about pushes.
func makeDemoRepository(ctx context.Context, cl *client.Client, dir string) (demoRepository, error) {
	r := demoRepository{bare: filepath.Join(dir, "shop.git"), work: filepath.Join(dir, "shop")}
	if _, err := os.Stat(r.bare); errors.Is(err, fs.ErrNotExist) {
		if err := r.create(ctx); err != nil {
			return r, fmt.Errorf("make the example repository: %w", err)
		}
	}
	return r, r.register(ctx, cl)
}

func (r demoRepository) create(ctx context.Context) error {
	if err := os.MkdirAll(r.work, 0o755); err != nil {
		return err
	}
	if err := copyDemo(r.work); err != nil {
		return err
	}
	for _, c := range []git.Cmd{
		{Args: []string{"init", "--quiet", "--bare", "--initial-branch=main", r.bare}},
		{Args: []string{"init", "--quiet", "--initial-branch=main", r.work}},
		{Dir: r.work, Args: []string{"remote", "add", "origin", r.bare}},
		{Dir: r.work, Args: []string{"add", "--all"}},
		{Dir: r.work, Args: []string{"commit", "--quiet", "--message", "Cache the price table per region"}, Env: demoAuthor},
	} {
		if _, err := git.Run(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// register adds the source, unless an earlier demo did, and installs the hook with its secret.
func (r demoRepository) register(ctx context.Context, cl *client.Client) error {
	if _, err := cl.Source(ctx, demoSource); err == nil {
		return nil
	} else if !client.IsStatus(err, 404) {
		return err
	}
	added, err := cl.AddSource(ctx, client.NewSource{Kind: "local", Name: demoSource, Path: r.bare, Repo: "acme/shop"})
	if err != nil {
		return fmt.Errorf("add the source: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = git.InstallHooks(ctx, r.bare, git.HookOptions{Kici: self, URL: added.WebhookURL, Secret: added.Secret})
	return err
}

// push pushes main; when there is nothing new, an empty commit first. What git and the hook say goes to out.
func (r demoRepository) push(ctx context.Context, out io.Writer) error {
	remote, err := git.Run(ctx, git.Cmd{Dir: r.work, Args: []string{"ls-remote", "origin", "refs/heads/main"}})
	if err != nil {
		return err
	}
	head, err := git.Run(ctx, git.Cmd{Dir: r.work, Args: []string{"rev-parse", "HEAD"}})
	if err != nil {
		return err
	}
	if bytes.HasPrefix(remote, bytes.TrimSpace(head)) {
		again := git.Cmd{Dir: r.work, Args: []string{"commit", "--quiet", "--allow-empty", "--message", "Run the demo again"}, Env: demoAuthor}
		if _, err := git.Run(ctx, again); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "$ cd %s && git push origin main\n", r.work)
	_, err = git.Run(ctx, git.Cmd{Dir: r.work, Args: []string{"push", "--quiet", "origin", "main"}, Stderr: out})
	return err
}

func copyDemo(into string) error {
	const root = "demo/shop"
	return fs.WalkDir(demoFiles, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(into, filepath.FromSlash(strings.TrimPrefix(name, root)))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := demoFiles.ReadFile(name)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if path.Ext(name) == ".sh" {
			mode = 0o755
		}
		return os.WriteFile(to, data, mode)
	})
}

func trimLine(b []byte) string { return strings.TrimSpace(string(b)) }
