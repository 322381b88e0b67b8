package baremetal

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
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
