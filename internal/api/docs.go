package api

import (
	"encoding/json"
	"html/template"
	"net/http"
	"sort"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		a.log.Error("encode openapi", "err", err)
		writeFailure(w, failureOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// docPage is the page /docs: everything in one file, nothing from outside, no script (D22).
var docPage = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>kici API</title><style>
:root{color-scheme:light dark;--ink:#1c2024;--quiet:#667;--line:#ddd;--bg:#fff;--code:#f4f5f7}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--quiet:#9aa;--line:#333;--bg:#15181b;--code:#1f2428}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--bg);max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}code{font:13px ui-monospace,monospace;background:var(--code);padding:.1em .3em;border-radius:3px}
details{border-bottom:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer}summary span{color:var(--quiet);margin-left:.6em}
table{border-collapse:collapse;margin:.5rem 0}td{padding:.15rem .8rem .15rem 0;vertical-align:top}p,td:last-child{color:var(--quiet)}
</style></head><body><h1>kici API <small>{{.Version}}</small></h1>
<p>Send <code>Authorization: Bearer &lt;token&gt;</code>. Errors are <code>{"error": "…", "details": ["…"]}</code>.
For programs: <a href="openapi.json">openapi.json</a>.</p>
{{range .Groups}}<h2>{{.Name}}</h2>{{range .Ops}}<details><summary><code>{{.Method}} {{.Path}}</code><span>{{.Summary}}</span></summary>
<p>{{.Description}}</p><table>{{range .Fields}}<tr><td><code>{{.Name}}</code></td><td>{{.Where}}</td><td>{{.Doc}}</td></tr>{{end}}</table></details>
{{end}}{{end}}</body></html>`))

type docGroup struct {
	Name string
	Ops  []docOp
}

type docOp struct {
	Method, Path, Summary, Description string
	Fields                             []docField
}

type docField struct{ Name, Where, Doc string }

func (a *API) docs(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	doc := a.huma.OpenAPI()
	if err := docPage.Execute(w, map[string]any{"Version": a.d.Version, "Groups": groups(doc)}); err != nil {
		a.log.Error("write docs", "err", err)
	}
}

func groups(doc *huma.OpenAPI) []docGroup {
	byTag := map[string][]docOp{}
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "DELETE": item.Delete} {
			if op == nil {
				continue
			}
			byTag[op.Tags[0]] = append(byTag[op.Tags[0]], docOp{
				Method: method, Path: path, Summary: op.Summary, Description: op.Description, Fields: fields(doc, op),
			})
		}
	}
	out := make([]docGroup, 0, len(byTag))
	for tag, ops := range byTag {
		sort.Slice(ops, func(i, k int) bool { return ops[i].Path+ops[i].Method < ops[k].Path+ops[k].Method })
		out = append(out, docGroup{tag, ops})
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Name < out[k].Name })
	return out
}

func fields(doc *huma.OpenAPI, op *huma.Operation) []docField {
	var out []docField
	for _, p := range op.Parameters {
		out = append(out, docField{p.Name, p.In, p.Description})
	}
	if op.RequestBody == nil {
		return out
	}
	for _, media := range op.RequestBody.Content {
		s := media.Schema
		if s != nil && s.Ref != "" {
			s = doc.Components.Schemas.SchemaFromRef(s.Ref)
		}
		if s == nil {
			continue
		}
		names := make([]string, 0, len(s.Properties))
		for name := range s.Properties {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			where := "body"
			if strings.Contains(" "+strings.Join(s.Required, " ")+" ", " "+name+" ") {
				where = "body, required"
			}
			out = append(out, docField{name, where, s.Properties[name].Description})
		}
	}
	return out
}
