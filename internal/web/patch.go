package web

import (
	"bytes"
	"context"
	"strings"

	"github.com/a-h/templ"
)

// part is an element of a live page, with its id. One with parts of its own is sent whole only when key, which says which parts it
// has, changes.
type part struct {
	id    string
	key   string
	c     templ.Component
	parts []part
}

// patch sends the elements that differ from what was sent last.
func (st *stream) patch(ctx context.Context, parts []part) error {
	var out strings.Builder
	for _, p := range parts {
		if err := st.add(ctx, &out, p); err != nil {
			return err
		}
	}
	if out.Len() == 0 {
		return nil
	}
	return st.raw("patch", out.String())
}

func (st *stream) add(ctx context.Context, out *strings.Builder, p part) error {
	if p.parts != nil {
		key, seen := st.last[p.id]
		st.last[p.id] = p.key
		if !seen || key != p.key {
			if err := p.c.Render(ctx, out); err != nil {
				return err
			}
			out = &strings.Builder{} // its parts are sent with it
		}
		for _, q := range p.parts {
			if err := st.add(ctx, out, q); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer
	if err := p.c.Render(ctx, &b); err != nil {
		return err
	}
	html := b.String()
	if still := withoutClocks(html); st.last[p.id] != still {
		st.last[p.id] = still
		out.WriteString(html)
	}
	return nil
}

// withoutClocks cuts the texts that the page counts on by itself.
func withoutClocks(html string) string {
	var b strings.Builder
	for {
		i := strings.Index(html, " data-since=")
		if j := strings.Index(html, " data-ago="); i < 0 || j >= 0 && j < i {
			i = j
		}
		if i < 0 {
			return b.String() + html
		}
		i += strings.IndexByte(html[i:], '>') + 1
		b.WriteString(html[:i])
		html = html[i:]
		html = html[max(strings.IndexByte(html, '<'), 0):]
	}
}
