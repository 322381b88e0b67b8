package forge

import "strings"

// Cut shortens text to at most limit bytes, limit at least 4, without breaking a character; a cut is marked by an ellipsis.
func Cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	const mark = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}
