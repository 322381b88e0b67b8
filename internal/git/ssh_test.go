package git_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/git"
)

// sshServer is a real sshd on a loopback port, whose one user may run nothing but git.
type sshServer struct {
	dir, url string
	port     int
	key      string // private key that is let in
	hostKey  string // line of known_hosts
}

func serveSSH(t *testing.T, repo string) *sshServer {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	for _, tool := range []string{sshd, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not installed (scripts/setup.sh): nothing of ssh was tested", tool)
		}
	}
	s := &sshServer{dir: t.TempDir(), port: freePort(t)}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	sh(t, s.dir, "ssh-keygen -q -t ed25519 -N '' -f client && chmod 700 . && cp client.pub authorized")
	key, _ := os.ReadFile(filepath.Join(s.dir, "client"))
	s.key = string(key)
	force := filepath.Join(s.dir, "force")
	script := "#!/bin/sh\nunset GIT_CONFIG_PARAMETERS\nexport GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'\n" +
		"exec git-shell -c \"$SSH_ORIGINAL_COMMAND\"\n"
	if err := os.WriteFile(force, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %s/host
PidFile none
AuthorizedKeysFile %s/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
ForceCommand %s
`, s.port, s.dir, s.dir, force)
	if err := os.WriteFile(filepath.Join(s.dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.newHostKey(t)
	_ = os.Mkdir("/run/sshd", 0o755) // sshd insists on it when it is root
	cmd := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(s.dir, "config"))
	var said syncBuffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	s.waitReady(t)
	s.url = fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", me.Username, s.port, repo)
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *sshServer) newHostKey(t *testing.T) {
	t.Helper()
	sh(t, s.dir, "rm -f host host.pub; ssh-keygen -q -t ed25519 -N '' -f host")
	s.hostKey = fmt.Sprintf("[127.0.0.1]:%d %s", s.port, sh(t, s.dir, "cut -d' ' -f1,2 host.pub"))
}

func (s *sshServer) waitReady(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err == nil {
			_ = c.SetDeadline(deadline)
			banner := make([]byte, 4)
			_, err = c.Read(banner)
			_ = c.Close()
			if err == nil && string(banner) == "SSH-" {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSSHKeysAndHostKeys(t *testing.T) {
	repo, first, second, _ := project(t)
	s := serveSSH(t, repo)
	sh(t, s.dir, "ssh-keygen -q -t ed25519 -N '' -f stranger && ssh-keygen -q -t ed25519 -N '' -f otherhost")
	stranger, _ := os.ReadFile(filepath.Join(s.dir, "stranger"))
	wrongPin := fmt.Sprintf("[127.0.0.1]:%d %s", s.port, sh(t, s.dir, "cut -d' ' -f1,2 otherhost.pub"))
	// An agent or a configuration of the user would let anybody in.
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(s.dir, "agent"))
	t.Setenv("TMPDIR", odd(t, "a 100%h $ of 'quotes'"))

	ms := newMirrors(t, odd(t, "b %d 'quotes'"))
	for name, c := range map[string]struct {
		remote git.Remote
		want   error
		says   string
	}{
		"right key, pinned host":       {git.Remote{SSHKey: s.key, KnownHosts: s.hostKey}, nil, ""},
		"key without its last newline": {git.Remote{SSHKey: strings.TrimSpace(s.key), KnownHosts: s.hostKey + "\r\n"}, nil, ""},
		"host at first sight":          {git.Remote{SSHKey: s.key}, nil, ""},
		"a stranger's key":             {git.Remote{SSHKey: string(stranger), KnownHosts: s.hostKey}, git.ErrDenied, "Permission denied"},
		"no key":                       {git.Remote{KnownHosts: s.hostKey}, git.ErrDenied, "Permission denied"},
		"nonsense for a key":           {git.Remote{SSHKey: "nonsense", KnownHosts: s.hostKey}, git.ErrDenied, ""},
		"wrong pin":                    {git.Remote{SSHKey: s.key, KnownHosts: wrongPin}, git.ErrHostKey, "ssh-keyscan -p"},
	} {
		t.Run(name, func(t *testing.T) {
			c.remote.URL = s.url
			m := ms.Open(strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name))
			_, err := m.Files(t.Context(), c.remote, second, flows)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("err = %v, want %v", err, c.want)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "PRIVATE")) {
				t.Errorf("it says: %v", err)
			}
			if known := m.KnownHosts() != ""; known != (c.remote.KnownHosts == "") {
				t.Errorf("host keys learned: %v", known)
			}
			checkout := git.Checkout{Remote: c.remote, Dir: t.TempDir(), SHA: first}
			if err := checkout.Run(t.Context()); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("checkout: %v, want %v", err, c.want)
			}
		})
	}
	if left := sh(t, ms.dir, "find .keys -type f"); left != "" {
		t.Errorf("keys are left: %s", left)
	}
	if left := sh(t, os.TempDir(), "ls -A"); left != "" {
		t.Errorf("the checkout left %s", left)
	}
}

func TestSSHHostThatChangesItsKeyIsRefused(t *testing.T) {
	repo, _, second, _ := project(t)
	one, two := serveSSH(t, repo), serveSSH(t, repo)
	ms := newMirrors(t, t.TempDir())
	m := ms.Open("src")
	if _, err := m.Heads(t.Context(), git.Remote{URL: one.url, SSHKey: one.key}); err != nil {
		t.Fatal(err)
	}
	// The same key at the other's address: as if the first host had a new one.
	known := strings.ReplaceAll(m.KnownHosts(), fmt.Sprint(one.port), fmt.Sprint(two.port))
	if err := os.WriteFile(filepath.Join(ms.dir, "src.known_hosts"), []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	remote := git.Remote{URL: two.url, SSHKey: two.key}
	if _, err := m.Resolve(t.Context(), remote, second); !errors.Is(err, git.ErrHostKey) || !strings.Contains(err.Error(), "knownHosts") {
		t.Fatalf("err = %v", err)
	}
	remote.KnownHosts = m.KnownHosts() // what an agent is given
	if err := (git.Checkout{Remote: remote, Dir: t.TempDir(), SHA: second}).Run(t.Context()); !errors.Is(err, git.ErrHostKey) {
		t.Errorf("checkout: %v", err)
	}
	remote.KnownHosts = two.hostKey // the cure
	if _, err := m.Resolve(t.Context(), remote, second); err != nil {
		t.Error(err)
	}
}

// odd makes a directory whose name is full of what shells and ssh read.
func odd(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
