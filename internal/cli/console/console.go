// Package console is where the commands meet the person: streams, the output format, tables, colours, cleaning of text that
// came from outside, the exit codes, and the way to the server (address and token). Data goes to Out and nothing else does;
// notices go to Err.
package console

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
)

// Exit codes (D21).
const (
	ExitOK       = 0
	ExitFailed   = 1  // failed or refused
	ExitNotClean = 2  // partly done, timed out, drift found
	ExitUsage    = 64 // wrong usage
)

// Console is what every command gets.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Now      func() time.Time
	Version  string
	Self     []string // how to start this program again; nil where that is not known
	Admin    bool     // the kici-admin tree: hints name its variables

	// Flags of every command.
	Server  string
	Token   string
	Org     string // --org
	Output  string // table, json or yaml
	JSON    bool   // --json
	NoColor bool
	NoTrunc bool // --no-trunc: tables are as wide as what is in them

	Offline     bool   // --offline: without a server, on its database
	DatabaseURL string // --database-url: likewise, on this PostgreSQL
	// OpenOffline opens the database and answers as a server would, until CloseOffline; nil where that is not built in.
	OpenOffline func(databaseURL string) (url, token string, close func() error, err error)
	offline     struct {
		url, token string
		close      func() error
	}

	InTerminal, OutTerminal bool
	Width, Height           int // of the terminal, 0 when Out is none
}

// New returns the console of this process.
func New() *Console {
	c := &Console{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Output: "table",
		InTerminal: term.IsTerminal(int(os.Stdin.Fd())), OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
	}
	if c.OutTerminal {
		w, h, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil {
			w, h = 0, 0
		}
		c.Width, c.Height = tableWidth(w, c.Getenv("COLUMNS")), h
	}
	return c
}

// Bounds of what tables are made to fit.
const (
	usualWidth = 80
	minWidth   = 40
	maxWidth   = 400
)

// tableWidth is the width that tables are made to fit: COLUMNS where it is set, else the terminal's own, within bounds.
func tableWidth(terminal int, columns string) int {
	if n, err := strconv.Atoi(columns); err == nil && n > 0 {
		terminal = n
	}
	if terminal <= 0 {
		terminal = usualWidth
	}
	return min(max(terminal, minWidth), maxWidth)
}

// Color reports whether colours may be used: on a terminal that is not dumb, or where CLICOLOR_FORCE asks for them; never when
// NO_COLOR is set.
func (c *Console) Color() bool {
	force := c.Getenv("CLICOLOR_FORCE")
	switch {
	case c.NoColor || c.Getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return c.OutTerminal && c.Getenv("TERM") != "dumb"
}

// Notice prints a sentence for the person, apart from the data.
func (c *Console) Notice(format string, args ...any) {
	fmt.Fprintln(c.Err, Clean(fmt.Sprintf(format, args...)))
}

// Format is the chosen output format, or a usage error.
func (c *Console) Format() (string, error) {
	if c.JSON {
		return "json", nil
	}
	switch c.Output {
	case "", "table", "json", "yaml":
		return first(c.Output, "table"), nil
	}
	return "", Usage("--output is table, json or yaml, not %q", c.Output)
}

// ExitError is an error with an exit code of its own. A nil Err prints nothing.
type ExitError struct {
	Code int
	Err  error
}

// Error is the sentence to print.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Usage is an error of wrong usage (64).
func Usage(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// Exit ends the command with a code and without a message: what there is to say was printed.
func Exit(code int) error { return &ExitError{Code: code} }

// CodeOf is the exit code of err.
func CodeOf(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.Code
	}
	return ExitFailed
}

func first(texts ...string) string {
	for _, t := range texts {
		if strings.TrimSpace(t) != "" {
			return t
		}
	}
	return ""
}
