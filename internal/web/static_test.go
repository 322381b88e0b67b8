package web

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tokens are the colours of the style sheet: name → [light, dark].
func tokens(t *testing.T) map[string][2]string {
	t.Helper()
	css, err := static.ReadFile("static/kici.css")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]string{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`).FindAllStringSubmatch(string(css), -1) {
		out[m[1]] = [2]string{m[2], m[3]}
	}
	return out
}

func luminance(hex string) float64 {
	var l float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, _ := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestTextHasContrastAA(t *testing.T) {
	if c := contrast("#000000", "#ffffff"); math.Abs(c-21) > 0.01 {
		t.Fatalf("black on white is %.2f", c)
	}
	colours := tokens(t)
	for _, text := range []string{"ink", "soft", "faint", "accent", "ok", "bad", "run", "wait", "off"} {
		for _, ground := range []string{"bg", "panel", "log", "accent-bg"} {
			for scheme, name := range []string{"light", "dark"} {
				fg, bg := colours[text][scheme], colours[ground][scheme]
				if fg == "" || bg == "" {
					t.Fatalf("the style sheet lacks --%s or --%s", text, ground)
				}
				if c := contrast(fg, bg); c < 4.5 {
					t.Errorf("%s: --%s on --%s is %.2f, AA wants 4.5", name, text, ground, c)
				}
			}
		}
	}
}

func TestColoursStandOnlyInTheTokens(t *testing.T) {
	css, err := static.ReadFile("static/kici.css")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(css), "}")
	for n, line := range strings.Split(rest, "\n") {
		if m := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b`).FindString(line); m != "" && !strings.Contains(line, ".btn.primary") && !strings.Contains(line, "#follow") {
			t.Errorf("line %d after the tokens uses the colour %s", n, m)
		}
	}
}

// Nothing that is served asks another place for anything.
func TestStaticFilesNameNoOtherPlace(t *testing.T) {
	files, err := static.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := static.ReadFile("static/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:https?:)?//[a-zA-Z0-9.-]+\.[a-z]{2,}[^\s"')]*|@import|url\(`).FindAllString(string(data), -1) {
			if !strings.HasPrefix(m, "http://www.w3.org/") {
				t.Errorf("%s names %s", f.Name(), m)
			}
		}
	}
}

// The clocks of the page count as the server does.
func TestScriptFormatsDurationsAsTheServer(t *testing.T) {
	js, err := static.ReadFile("static/kici.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"s < 9.95", "s < 59.5", "s < 60", "s < 3600"} {
		if !strings.Contains(string(js), rule) {
			t.Errorf("kici.js lacks the rule %q of durationMs", rule)
		}
	}
	for ms, want := range map[int64]string{
		-5: "0.0 s", 0: "0.0 s", 40: "0.0 s", 449: "0.4 s", 9949: "9.9 s", 9950: "10 s", 59_499: "59 s", 59_600: "1 m 00", 60_000: "1 m 00",
		62_000: "1 m 02", 3_599_000: "59 m 59", 3_600_000: "1 h 00", 7_500_000: "2 h 05", 360_000_000: "100 h 00",
	} {
		if got := durationMs(&ms); got != want {
			t.Errorf("%d ms is %q, want %q", ms, got, want)
		}
	}
	if got := durationMs(nil); got != "" {
		t.Errorf("no duration is %q", got)
	}
}

func TestTextDropsWhatDeceives(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "a\x00\x1b\u009bb": "ab", "a\nb\tc": "a\nb\tc", "user\u202etxt": "user\u25aftxt", "\u2066x\u2069": "\u25afx\u25af",
	} {
		if got := text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
