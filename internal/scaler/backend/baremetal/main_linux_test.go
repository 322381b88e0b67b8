package baremetal

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// TestMain is the agent, too: the backend starts this test binary with the argument "agent".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		agent(os.Getenv("HELPER"))
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "child" {
		time.Sleep(time.Hour)
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "hog" {
		hog()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "server" {
		server(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// agent is what a real one looks like from outside: it takes its token, does something and stays.
func agent(mode string) {
	fd, _ := strconv.Atoi(os.Getenv("KICI_AGENT_TOKEN_FD"))
	f := os.NewFile(uintptr(fd), "token")
	token, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		fmt.Println("no token:", err)
		os.Exit(41)
	}
	_ = f.Close()
	fmt.Println("token", token)
	switch mode {
	case "die":
		for i := range 100 {
			fmt.Println("line", i)
		}
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "children":
		for range 3 {
			cmd := exec.Command(os.Args[0], "child")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				fmt.Println(err)
				os.Exit(42)
			}
		}
	case "hog":
		hog()
	case "parent of a hog":
		fmt.Println("the hog:", exec.Command(os.Args[0], "hog").Run())
	case "burn":
		for range 2 {
			go func() {
				for work := 0; ; {
					work++
				}
			}()
		}
	case "forks":
		for err := error(nil); err == nil; {
			err = exec.Command("sleep", "1000").Start()
		}
	case "chatty":
		line := make([]byte, 64<<10)
		for i := range line {
			line[i] = 'x'
		}
		line[len(line)-1] = '\n'
		for range 100 {
			_, _ = os.Stdout.Write(line)
		}
		fmt.Println("the end")
	}
	dir := os.Getenv("KICI_WORK_DIR")
	_ = os.WriteFile(dir+"/up", []byte(fmt.Sprint(os.Getpid(), " ", os.Getuid(), "\n")), 0o600)
	_ = os.MkdirAll(dir+"/cache/readonly", 0o700)
	_ = os.WriteFile(dir+"/cache/readonly/file", nil, 0o400)
	_ = os.Chmod(dir+"/cache/readonly", 0o500)
	time.Sleep(time.Hour)
}

// hog takes memory until something ends it.
func hog() {
	for all := [][]byte(nil); ; {
		block := make([]byte, 1<<20)
		for i := range block {
			block[i] = 1
		}
		all = append(all, block)
		_ = all
	}
}

// server is an orchestrator that starts an agent and stays, to be killed.
func server(dir string) {
	e := backend.Entry{Name: "one", Options: backend.Options{keyAllowRoot: true}, Sets: []backend.Set{{Key: "linux"}}}
	host := backend.Host{NodeID: "0000-" + filepath.Base(dir), Dir: dir, Binary: os.Args[0], Environ: os.Environ(), Log: slog.Default(), Now: time.Now}
	b, err := open(e, host, realFacts())
	if err == nil {
		_, err = b.Create(context.Background(), backend.Spec{AgentID: killedAgent, LabelSet: "linux", Token: "kat_secret"})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(43)
	}
	fmt.Println("up")
	time.Sleep(time.Hour)
}

const killedAgent = "scaler-bare-metal-0000000f"
