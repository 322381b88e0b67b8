package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// SecretInput is where a secret comes from (CLI-7): a prompt on a terminal, standard input in a pipe, a file, a variable of the
// environment or, with a warning, the command line. It is never echoed.
type SecretInput struct {
	file, env, value string
	noTrim, stdin    bool
}

const maxSecret = 1 << 20

// Flags adds the flags. prefix is "" for a command about one secret, else it is put before the names.
func (s *SecretInput) Flags(cmd *cobra.Command, prefix, what string) {
	name := func(n string) string {
		if prefix == "" {
			return n
		}
		return prefix + "-" + n
	}
	f := cmd.Flags()
	f.StringVar(&s.file, name("from-file"), "", "read it from a `file`: "+what)
	f.StringVar(&s.env, name("from-env"), "", "read it from a `variable` of the environment")
	f.StringVar(&s.value, name("value"), "", "the value itself; other users of this machine can see it in the process list")
	f.BoolVar(&s.stdin, name("from-stdin"), false, "read it from standard input")
	f.BoolVar(&s.noTrim, name("no-trim"), false, "keep the line break at the end")
}

// Given reports whether a source was chosen.
func (s *SecretInput) Given() bool { return s.file != "" || s.env != "" || s.value != "" || s.stdin }

// Read gets the secret: from what was chosen, else from a prompt or from the pipe.
func (s *SecretInput) Read(c *Console, what string) (string, error) {
	chosen := 0
	for _, given := range []bool{s.file != "", s.env != "", s.value != "", s.stdin} {
		if given {
			chosen++
		}
	}
	if chosen > 1 {
		return "", Usage("give the value in one way only: a file, a variable, standard input or --value")
	}
	text, err := s.read(c, what)
	if err != nil {
		return "", err
	}
	if len(text) > maxSecret {
		return "", fmt.Errorf("the value is longer than %d bytes", maxSecret)
	}
	if !s.noTrim {
		text = strings.TrimRight(text, "\r\n")
	}
	if text == "" {
		return "", Usage("the value is empty")
	}
	return text, nil
}

func (s *SecretInput) read(c *Console, what string) (string, error) {
	switch {
	case s.file != "":
		b, err := os.ReadFile(s.file)
		return string(b), err
	case s.env != "":
		v := c.Getenv(s.env)
		if v == "" {
			return "", Usage("the variable %s is not set", s.env)
		}
		return v, nil
	case s.value != "":
		c.Notice("warning: a value on the command line can be seen in the process list and in the shell's history")
		return s.value, nil
	case s.stdin || !c.InTerminal:
		b, err := io.ReadAll(io.LimitReader(c.In, maxSecret+1))
		return string(b), err
	}
	return c.prompt(what)
}

// prompt asks on the terminal without echo.
func (c *Console) prompt(what string) (string, error) {
	fmt.Fprintf(c.Err, "%s: ", CleanLine(what))
	f, ok := c.In.(*os.File)
	if !ok {
		line, err := bufio.NewReader(c.In).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return line, err
	}
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(c.Err)
	return string(b), err
}
