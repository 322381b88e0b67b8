package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// helperPatience bounds a helper: it may ask a service of a cloud.
const helperPatience = 30 * time.Second

// helperPattern is what the names of helpers may be: they become part of a program's name.
var helperPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })

// notFound is how helpers say that they know nothing of a registry.
const notFound = "credentials not found"

// askHelper asks docker-credential-HELPER, found on the PATH of this server's environment, for the credentials of a registry. None is no
// error.
func askHelper(ctx context.Context, environ []string, helper, server string) (credentials, error) {
	if !helperPattern().MatchString(helper) {
		return credentials{}, fmt.Errorf("%.80q is no name of a credential helper", helper)
	}
	name := "docker-credential-" + helper
	path, err := lookPath(name, variable(environ, "PATH"))
	if err != nil {
		return credentials{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, helperPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "get")
	cmd.Stdin, cmd.Env, cmd.WaitDelay = strings.NewReader(server), environ, time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{w: &out, left: maxAuthFile}, io.Discard
	if err := cmd.Run(); err != nil {
		if strings.Contains(out.String(), notFound) {
			return credentials{}, nil
		}
		return credentials{}, fmt.Errorf("%s: %w: %s", name, err, clip(out.String()))
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		return credentials{}, fmt.Errorf("%s: its answer is no JSON", name) // which may hold a password
	}
	if got.Username == "<token>" {
		return credentials{Token: got.Secret}, nil
	}
	return credentials{Username: got.Username, Password: got.Secret}, nil
}

func lookPath(name, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s, which the server's login file names, is not on the server's PATH", name)
}

// limited takes no more than so many bytes.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("it says too much")
	}
	l.left -= len(p)
	return l.w.Write(p)
}

// clip is the first line of a text for people, and not much of it.
func clip(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.ToValidUTF8(line[:min(len(line), 200)], "")
}
