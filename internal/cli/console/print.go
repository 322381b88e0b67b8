package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"go.yaml.in/yaml/v4"
)

// Print writes v as JSON or YAML, or calls human when the format is table.
func (c *Console) Print(v any, human func() error) error {
	format, err := c.Format()
	if err != nil {
		return err
	}
	switch format {
	case "json":
		return c.printJSON(v)
	case "yaml":
		return c.printYAML(v)
	}
	return human()
}

// Done says that something was done to an object: a sentence for people, a document such as {"revoked": "t1"} for programs.
func (c *Console) Done(what, object string) error {
	return c.Print(map[string]string{what: object}, func() error {
		c.Notice("%s %s", what, object)
		return nil
	})
}

func (c *Console) printJSON(v any) error {
	e := json.NewEncoder(c.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printYAML keeps the names and the order of the JSON form.
func (c *Console) printYAML(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("encode yaml: %w", err)
	}
	block(&n)
	out, err := yaml.Marshal(&n)
	if err != nil {
		return fmt.Errorf("encode yaml: %w", err)
	}
	_, err = c.Out.Write(bytes.TrimPrefix(out, []byte("---\n")))
	return err
}

// block gives every node the block style that people read. Quotes are chosen anew by the encoder.
func block(n *yaml.Node) {
	n.Style = 0
	if (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	for _, k := range n.Content {
		block(k)
	}
}

// Cell is one field of a table: text, and the style class of a status (D5) or "".
type Cell struct{ Text, Class string }

// Plain makes cells without a class.
func Plain(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, t := range texts {
		out[i] = Cell{Text: t}
	}
	return out
}

// Table writes rows below a header. On a terminal it is made to fit: the widest columns are shortened first, then columns from the
// middle are left out; the first two and the last always stay. Elsewhere nothing is cut.
func (c *Console) Table(header []string, rows [][]Cell) error {
	header, rows = c.fit(header, rows)
	t := table.New().Headers(header...).Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).BorderHeader(false).BorderColumn(false).Wrap(false)
	for _, r := range rows {
		texts := make([]string, len(r))
		for i, cell := range r {
			texts[i] = cell.Text
		}
		t.Row(texts...)
	}
	t.StyleFunc(func(row, col int) lipgloss.Style {
		s := lipgloss.NewStyle()
		if col < len(header)-1 {
			s = s.PaddingRight(gap)
		}
		if !c.Color() {
			return s
		}
		if row == table.HeaderRow {
			return s.Faint(true)
		}
		if row < len(rows) && col < len(rows[row]) {
			return paint(s, rows[row][col].Class)
		}
		return s
	})
	for line := range strings.SplitSeq(strings.TrimRight(t.String(), "\n"), "\n") {
		if _, err := fmt.Fprintln(c.Out, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// Field is a named value, with the style class of a status or "".
type Field struct{ Name, Value, Class string }

// Fields writes "name  value" lines; empty values are left out.
func (c *Console) Fields(fields ...Field) error {
	width := 0
	for _, f := range fields {
		if f.Value != "" {
			width = max(width, len(f.Name))
		}
	}
	for _, f := range fields {
		if f.Value == "" {
			continue
		}
		name := c.Dim(fmt.Sprintf("%-*s", width, f.Name))
		if _, err := fmt.Fprintf(c.Out, "%s  %s\n", name, c.Paint(CleanLine(f.Value), f.Class)); err != nil {
			return err
		}
	}
	return nil
}

// Dim makes text quiet.
func (c *Console) Dim(s string) string {
	if !c.Color() {
		return s
	}
	return lipgloss.NewStyle().Faint(true).Render(s)
}

// Bold makes text stand out.
func (c *Console) Bold(s string) string {
	if !c.Color() {
		return s
	}
	return lipgloss.NewStyle().Bold(true).Render(s)
}

// Paint colours text by a status class. The text itself says the same, so that colour is never the only sign.
func (c *Console) Paint(s, class string) string {
	if class == "" || !c.Color() {
		return s
	}
	return paint(lipgloss.NewStyle(), class).Render(s)
}

func paint(s lipgloss.Style, class string) lipgloss.Style {
	var col color.Color
	switch class {
	case "success":
		col = lipgloss.Green
	case "failed":
		col = lipgloss.Red
	case "running":
		col = lipgloss.Blue
	case "allowed", "held":
		col = lipgloss.Yellow
	case "cancelled", "skipped", "pending", "queued":
		return s.Faint(true)
	default:
		return s
	}
	return s.Foreground(col)
}
