package app

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/cli/console"
)

// greet tells a newcomer where the key is (D12), and what the kici command must be told on this machine to find it.
func (s *Server) greet(out io.Writer) {
	fmt.Fprintln(out, greeting{dir: s.data.Path(), url: s.URL(), local: "http://" + s.localAddress() + s.o.BasePath}.text())
}

// greeting is what a first start says, made from where its data is and the addresses of the server, for people and on this machine.
type greeting struct{ dir, url, local string }

func (g greeting) text() string {
	return strings.Join(slices.Concat([]string{
		"",
		"This is the first start of this server.",
		"  Dashboard    " + g.url,
		"  Admin token  " + filepath.Join(g.dir, access.TokenFile),
	}, g.hints(), []string{
		"Elsewhere run `kici login " + g.url + "`; the dashboard asks for the same token.",
		"",
	}), "\n")
}

// hints say how the kici command on this machine reaches this server: by itself, with variables, or with a login, because a token
// from a file is sent to loopback only.
func (g greeting) hints() []string {
	if u, err := url.Parse(g.local); err == nil && u.Hostname() != "localhost" {
		if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
			return []string{"The kici command needs the token once, on this machine too: run `kici login " + g.local + "`."}
		}
	}
	var exports []string
	if !slices.Contains(usualDataDirs(), g.dir) {
		exports = append(exports, "  export KICI_DATA_DIR="+shellWord(g.dir))
	}
	if g.local != console.DefaultServer {
		exports = append(exports, "  export KICI_URL="+shellWord(g.local))
	}
	const attempt = "try `kici source add local .` in a repository."
	if len(exports) == 0 {
		return []string{"On this machine the kici command finds both by itself: " + attempt}
	}
	return append(append([]string{"On this machine tell the kici command where they are:"}, exports...), "Then "+attempt)
}

// usualDataDirs are where the kici command looks without being told.
func usualDataDirs() []string {
	dirs := []string{filepath.Clean(DefaultDataDir()), rootDataDir}
	if home, err := os.UserHomeDir(); err == nil && !filepath.IsAbs(os.Getenv("XDG_DATA_HOME")) {
		dirs = append(dirs, filepath.Join(home, ".local", "share", "kici"))
	}
	return dirs
}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:[]") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
