package setting

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/operations.md")

// The tables in the documentation are the tables of keys.
func TestDocumentation(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "operations.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, table := range map[string]string{"cluster": tableOf(t, clusterKeys), "organisation": tableOf(t, orgKeys)} {
		begin, end := "<!-- settings of the "+name+" -->\n", "<!-- end of settings -->\n"
		head, rest, found := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no place for the settings of the %s", path, name)
		}
		want = head + begin + table + end + tail
	}
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not show the settings as they are; run the test with -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tableOf[T any](t *testing.T, keys []*keyOf[T]) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| key | default | may be | what it is |\n|---|---|---|---|\n")
	for _, k := range keys {
		var v T
		k.first(&v)
		text, err := json.Marshal(k.get(&v))
		if err != nil {
			t.Fatal(err)
		}
		about := k.About
		if k.Restart {
			about += "; counts from the next start"
		}
		if k.Later {
			about += " *(no effect in this version)*"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, text, bounds(k.Key), about)
	}
	return b.String()
}

func bounds(k Key) string {
	switch k.Type {
	case TypeBool:
		return "true, false"
	case TypeText:
		return "an absolute URL"
	case TypeList, TypeMapping:
		return "a " + k.Type
	}
	text := fmt.Sprintf("≥ %d", k.Min)
	if k.ZeroOff {
		text = "≥ 1, 0 = off"
	}
	if k.Max < greatest && (k.Unit == "" || k.Unit == "bytes") {
		text += fmt.Sprintf(", ≤ %d", k.Max)
	}
	return text
}
