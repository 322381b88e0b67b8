package obs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// LogOptions says how to log. The zero value logs at info level, as text on a terminal and as JSON elsewhere.
type LogOptions struct {
	Format string // auto, text or json; "" is auto
	Level  string // debug, info, warn or error; "" is info
}

// NewLogger returns a logger that writes to w. Lines carry the request id of their context as request_id.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	level, err := parseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	terminal := isTerminal(w)
	var h slog.Handler
	switch format := strings.ToLower(o.Format); {
	case format == "json", (format == "" || format == "auto") && !terminal:
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	case format == "text", format == "", format == "auto":
		h = tint.NewTextHandler(w, &tint.Options{
			Level: level, TimeFormat: "15:04:05.000", NoColor: !terminal || os.Getenv("NO_COLOR") != "",
		})
	default:
		return nil, fmt.Errorf("unknown log format %q: use auto, text or json", o.Format)
	}
	return slog.New(contextHandler{h}), nil
}

// Discard is a logger that drops everything, for tests.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if s == "" {
		return level, nil
	}
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("unknown log level %q: use debug, info, warn or error", s)
	}
	return level, nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// contextHandler adds what the context knows to each line.
type contextHandler struct{ slog.Handler }

func (h contextHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := RequestID(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h contextHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(a)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}
