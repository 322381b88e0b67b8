package console

import (
	"slices"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

const (
	gap      = 2  // between two columns
	minCell  = 12 // a column is not shortened below that
	keepHead = 2  // columns at the front that always stay
)

// fit cleans all cells and makes them fit the terminal.
func (c *Console) fit(header []string, rows [][]Cell) ([]string, [][]Cell) {
	clean := make([][]Cell, len(rows))
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = lipgloss.Width(h)
	}
	for r, row := range rows {
		clean[r] = make([]Cell, len(header))
		for i := range min(len(row), len(header)) {
			clean[r][i] = Cell{CleanLine(row[i].Text), row[i].Class}
			widths[i] = max(widths[i], lipgloss.Width(clean[r][i].Text))
		}
	}
	if c.Width <= 0 || c.NoTrunc {
		return header, clean
	}
	keep := shrink(widths, c.Width)
	out := make([]string, len(keep))
	for k, i := range keep {
		out[k] = ansi.Truncate(header[i], widths[i], "…")
	}
	for r, row := range clean {
		cells := make([]Cell, len(keep))
		for k, i := range keep {
			cells[k] = Cell{ansi.Truncate(row[i].Text, widths[i], "…"), row[i].Class}
		}
		clean[r] = cells
	}
	return out, clean
}

// shrink reduces widths until they fit, and returns the columns that stay.
func shrink(widths []int, room int) []int {
	keep := make([]int, len(widths))
	for i := range keep {
		keep[i] = i
	}
	for {
		over := -room - gap
		for _, i := range keep {
			over += widths[i] + gap
		}
		if over <= 0 {
			return keep
		}
		switch at := widest(widths, keep); {
		case at >= 0 && widths[at] > minCell:
			widths[at]-- // by one, so that several wide columns end up equal
		case len(keep) > keepHead+1:
			keep = slices.Delete(keep, len(keep)-2, len(keep)-1)
		case at >= 0 && widths[at] > 1:
			widths[at]--
		default:
			return keep // the first column alone is wider than the terminal: it wraps, but it can be copied
		}
	}
}

// widest is the widest column but the first, -1 for none.
func widest(widths, keep []int) int {
	at := -1
	for _, i := range keep[1:] {
		if at < 0 || widths[i] > widths[at] {
			at = i
		}
	}
	return at
}
