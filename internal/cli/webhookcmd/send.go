// Package webhookcmd is "kici webhook": it signs and sends deliveries without the API and without a token. Git hooks use it.
package webhookcmd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Commands returns the noun with its verbs.
func Commands() []*cobra.Command {
	cmd := &cobra.Command{
		Use:     "webhook",
		Long:    "Send signed webhooks by hand, to try a source out.",
		Example: "  kici webhook send --help", Short: "Sign and send deliveries to a source's webhook",
	}
	cmd.AddCommand(sendCommand())
	return []*cobra.Command{cmd}
}

type sender struct {
	url, secretFile, event, id, data, actor string
	headers                                 []string
	hook                                    bool
	retryFor                                time.Duration
	secret                                  string
	out, errOut                             io.Writer
	client                                  *http.Client
}

func sendCommand() *cobra.Command {
	s := &sender{client: &http.Client{Timeout: 15 * time.Second}}
	cmd := &cobra.Command{
		Use:   "send --url URL [--secret-file FILE]",
		Short: "Send one delivery, or with --hook one for each ref that a git hook reports",
		Long: `Sends a body to a source's webhook address, signed with HMAC-SHA-256 when a secret file is given. It talks to the webhook
only: no API token is needed.

With --hook it reads "old new ref" lines, as git gives them to a post-receive hook, and sends a push for each branch and tag. It
then never fails: what cannot be delivered is a warning, so that no push or commit is held up for longer than --retry-for.`,
		Example: `  kici webhook send --url http://127.0.0.1:4000/webhook/default/generic/deploy --secret-file secret --event deploy --data '{"env":"prod"}'`,
		Args:    cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.out, s.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			err := s.run(cmd.Context(), cmd.InOrStdin())
			if err != nil && s.hook {
				s.warn(err)
				return nil
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.url, "url", "", "webhook address of the source")
	f.StringVar(&s.secretFile, "secret-file", "", "file with the secret that signs the body")
	f.StringVar(&s.event, "event", "push", "event name")
	f.StringVar(&s.id, "delivery-id", "", "id of the delivery; the same id is processed once (default random)")
	f.StringVar(&s.data, "data", "{}", "body; @FILE reads a file, - standard input")
	f.StringArrayVarP(&s.headers, "header", "H", nil, "further header, Name: value")
	f.StringVar(&s.actor, "actor", "", "who pushed (default the user)")
	f.BoolVar(&s.hook, "hook", false, `read "old new ref" lines from standard input`)
	f.DurationVar(&s.retryFor, "retry-for", 10*time.Second, "keep trying for so long while the server cannot be reached")
	_ = cmd.MarkFlagRequired("url")
	return cmd
}

func (s *sender) run(ctx context.Context, in io.Reader) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if s.secretFile != "" {
		text, err := os.ReadFile(s.secretFile)
		if err != nil {
			return fmt.Errorf("read the webhook secret: %w", err)
		}
		if s.secret = strings.TrimSpace(string(text)); s.secret == "" {
			return fmt.Errorf("%s is empty: it must hold the source's webhook secret", s.secretFile)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.retryFor+s.client.Timeout)
	defer cancel()
	if s.hook {
		return s.sendRefs(ctx, in)
	}
	body, err := s.body(in)
	if err != nil {
		return err
	}
	if s.id == "" {
		s.id = randomID()
	}
	answer, err := s.deliver(ctx, s.id, body, time.Now().Add(s.retryFor))
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, answer)
	return nil
}

const maxBody = 10 << 20

func (s *sender) body(in io.Reader) ([]byte, error) {
	switch {
	case s.data == "-":
		return io.ReadAll(io.LimitReader(in, maxBody+1))
	case strings.HasPrefix(s.data, "@"):
		text, err := os.ReadFile(s.data[1:])
		if err != nil {
			return nil, fmt.Errorf("read the body: %w", err)
		}
		return text, nil
	}
	return []byte(s.data), nil
}

// maxRefs bounds how many deliveries one push makes.
const maxRefs = 500

// sendRefs sends one push for each line of a hook. All of them share the time to try.
func (s *sender) sendRefs(ctx context.Context, in io.Reader) error {
	deadline := time.Now().Add(s.retryFor)
	lines := bufio.NewScanner(in)
	n := 0
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), " ", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "refs/heads/") && !strings.HasPrefix(fields[2], "refs/tags/") {
			continue
		}
		if n++; n > maxRefs {
			return fmt.Errorf("more than %d refs at once: the rest was not sent", maxRefs)
		}
		body, err := json.Marshal(map[string]any{
			"before": fields[0], "after": fields[1], "ref": fields[2], "pusher": map[string]string{"name": s.who()},
		})
		if err != nil {
			return err
		}
		if _, err := s.deliver(ctx, randomID(), body, deadline); err != nil {
			return fmt.Errorf("%s: %w", fields[2], err)
		}
	}
	return lines.Err()
}

// who is the person behind a push: what the git server says, else the user of this process.
func (s *sender) who() string {
	for _, name := range []string{s.actor, os.Getenv("REMOTE_USER"), os.Getenv("GL_USERNAME"), os.Getenv("GITEA_PUSHER_NAME")} {
		if name != "" {
			return name
		}
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func (s *sender) warn(err error) {
	fmt.Fprintf(s.errOut, "kici: warning: %v\nkici: the push itself is fine; to run its workflows: kici source trigger %s\n", err, path.Base(s.url))
}

// errAgain is wrapped by failures that a later attempt may not have.
var errAgain = errors.New("the server cannot take it now")

// deliver sends until it succeeds, is refused for good, or the deadline is over. All attempts bear one delivery id, so the server
// runs at most one of them.
func (s *sender) deliver(ctx context.Context, id string, body []byte, deadline time.Time) (string, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		answer, after, err := s.attempt(ctx, id, body)
		if err == nil || !errors.Is(err, errAgain) {
			return answer, err
		}
		pause := max(wait, after)
		if time.Now().Add(pause).After(deadline) {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(pause):
		}
	}
}

func (s *sender) attempt(ctx context.Context, id string, body []byte) (answer string, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Event-Type", s.event)
	req.Header.Set("X-Delivery-Id", id)
	for _, h := range s.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return "", 0, fmt.Errorf("--header %q is not Name: value", h)
		}
		req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if s.secret != "" {
		mac := hmac.New(sha256.New, []byte(s.secret))
		mac.Write(body)
		req.Header.Set("X-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", errAgain, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	answer = strings.TrimSpace(string(text))
	switch {
	case resp.StatusCode < 300:
		return answer, 0, nil
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return "", time.Duration(seconds) * time.Second, fmt.Errorf("%w: %s: %s", errAgain, resp.Status, reason(text))
	}
	return "", 0, fmt.Errorf("refused: %s: %s", resp.Status, reason(text))
}

// reason is the sentence in an error body.
func reason(body []byte) string {
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		return e.Error
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, string(body[:min(len(body), 200)]))
}

func randomID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
