package agent

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestAwaitToken(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		none           bool // ErrNoTokenCame
	}{
		{"a line", "kat_1\nmore", "kat_1", false},
		{"without an end", "kat_1", "kat_1", false},
		{"nobody is there any more", "", "", true},
		{"an empty line", "\n", "", false},
		{"words", "kat 1\n", "", false},
		{"endless", strings.Repeat("x y", maxTokenBytes), "", false},
	} {
		got, err := awaitToken(strings.NewReader(c.in), time.Minute)
		if got != c.want || (err == nil) != (c.want != "") || errors.Is(err, ErrNoTokenCame) != c.none {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	r, w := io.Pipe()
	defer w.Close() // lets the reader end
	if _, err := awaitToken(r, time.Millisecond); !errors.Is(err, ErrNoTokenCame) {
		t.Errorf("nothing came, and %v", err)
	}
}
