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
	if c.Width <= 0 {
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
		widest := -1
		for k, i := range keep {
			if k > 0 && widths[i] > minCell && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		switch {
		case widest >= 0:
			widths[widest]-- // by one, so that several wide columns end up equal
		case len(keep) > keepHead+1:
			keep = slices.Delete(keep, len(keep)-2, len(keep)-1)
		default: // narrower than what must stay
			last := keep[len(keep)-1]
			if widths[last] == 1 {
				return keep
			}
			widths[last] = max(widths[last]-over, 1)
		}
	}
}
