// Command slow is kici whose server does not wait long for agents, and whose agents do what /shared/agent says:
//
//	exit   they say something and end
//	never  they take their token and do nothing
//	late   they register when they are told to end
//
// and else what they should.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kici-go/kici/internal/app"
	"github.com/kici-go/kici/internal/obs"
)

// Times of the server; tests know them.
const (
	registerTimeout = 3 * time.Second
	backoffBase     = time.Second
	backoffMax      = time.Minute
)

func main() { os.Exit(run()) }

func run() int {
	if os.Args[1] == "server" {
		return serve()
	}
	mode, _ := os.ReadFile("/shared/agent")
	if os.Args[1] == "agent" && len(mode) > 0 {
		return misbehave(strings.TrimSpace(string(mode)))
	}
	return app.Main(context.Background(), os.Args)
}

func misbehave(mode string) int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	token, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return 77
	}
	fmt.Println("it has its token")
	switch mode {
	case "exit":
		for i := range 60 {
			fmt.Println("line", i)
		}
		fmt.Println("no such thing here")
		return 9
	case "late":
		<-term
		log, err := os.Create("/shared/late.log")
		if err != nil {
			return 1
		}
		agent := exec.Command(os.Args[0], "agent")
		agent.Stdin, agent.Stdout, agent.Stderr = strings.NewReader(token), log, log
		if err := os.Rename("/shared/agent", "/shared/agent.was"); err != nil {
			return 1
		}
		fmt.Fprintln(log, "it ended:", agent.Run())
		return 0
	}
	<-term
	return 0
}

func serve() int {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	dir := flags.String("data-dir", "", "")
	port := flags.Int("port", 0, "")
	flags.String("log-format", "", "")
	_ = flags.Parse(os.Args[2:])
	log, err := obs.NewLogger(os.Stderr, obs.LogOptions{Format: "text", Level: "info"})
	if err != nil {
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := app.NewServer(ctx, app.Options{DataDir: *dir, Port: *port, Environ: os.Environ(), Log: log, Tune: func(t *app.Tuning) {
		t.Scaler.RegisterTimeout, t.Scaler.BackoffBase, t.Scaler.BackoffMax = registerTimeout, backoffBase, backoffMax
	}})
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
