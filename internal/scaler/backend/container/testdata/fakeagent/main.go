// Command fakeagent is what an agent looks like from outside: it takes its token from the standard input, does something and stays.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	token, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		fmt.Println("no token came")
		os.Exit(77)
	}
	fmt.Println("token of", len(strings.TrimSpace(token)), "characters, uid", os.Getuid())
	if err := os.MkdirAll(os.Getenv("KICI_WORK_DIR"), 0o700); err != nil {
		fmt.Println(err)
		os.Exit(42)
	}
	for target := range strings.FieldsSeq(os.Getenv("TARGETS")) {
		result := "open"
		conn, err := net.DialTimeout("tcp", target, time.Second)
		if err != nil {
			result = "closed"
		} else {
			_ = conn.Close()
		}
		fmt.Println(target, "is", result)
	}
	fmt.Println("ready")
	switch os.Getenv("HELPER") {
	case "listen":
		l, err := net.Listen("tcp", ":7777")
		if err != nil {
			fmt.Println(err)
			os.Exit(43)
		}
		defer l.Close()
	case "die":
		for i := range 100 {
			fmt.Println("line", i)
		}
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "greedy":
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
			fmt.Println(len(all), "MiB")
		}
	case "chatty":
		line := strings.Repeat("x", 1023)
		for range 20 << 10 {
			fmt.Println(line)
		}
		fmt.Println("the end")
	}
	term := make(chan os.Signal, 1)
	if os.Getenv("HELPER") != "stubborn" {
		signal.Notify(term, syscall.SIGTERM)
	}
	select {
	case <-term:
	case <-time.After(time.Hour):
	}
}
