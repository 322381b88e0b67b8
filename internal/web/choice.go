package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// choice is what a page of a run or a job shows: which job, step, lines. It travels in the address.
type choice struct {
	run, job string
	step     int    // allSteps, or one
	line     int64  // the line to show; 0 = what a person came for, lastLine = the end
	attempt  int    // 0 = the current one
	absolute bool   // times of day
	find     string // what to look for
	from     string // where a search of all steps goes on
	jobs     jobFilter
}

// allSteps is the choice of no single step.
const allSteps = -1

// lastLine is the choice of the end of a log.
const lastLine = int64(1) << 62

// maxFind bounds what is looked for, as logs.MaxQuery does.
const maxFind = 200

func choiceOf(r *http.Request) choice {
	q := r.URL.Query()
	ch := choice{run: r.PathValue("run"), job: r.PathValue("job"), step: allSteps, absolute: q.Get("time") == "abs", jobs: jobFilterOf(q)}
	if from := q.Get("from"); strings.Trim(from, "0123456789|-") == "" { // a step and a cursor; nothing else is ever given back
		ch.from = from
	}
	if ch.job == "" {
		ch.job = q.Get("job")
	}
	if n, err := strconv.Atoi(q.Get("step")); err == nil && n >= 0 {
		ch.step = n
	}
	if n, err := strconv.Atoi(q.Get("attempt")); err == nil && n > 0 {
		ch.attempt = n
	}
	if ch.find = q.Get("q"); len(ch.find) > maxFind {
		ch.find = ""
	}
	if ch.step == allSteps {
		return ch
	}
	if q.Get("line") == "end" {
		ch.line = lastLine
	} else if n, err := strconv.ParseInt(q.Get("line"), 10, 64); err == nil {
		ch.line = min(max(n, 1), lastLine)
	}
	return ch
}

// query is the choice below the job's address.
func (ch choice) query() string {
	q := url.Values{}
	put := func(k, v string, when bool) {
		if when {
			q.Set(k, v)
		}
	}
	put("step", strconv.Itoa(ch.step), ch.step != allSteps)
	put("line", strconv.FormatInt(ch.line, 10), ch.line > 0)
	put("line", "end", ch.line == lastLine)
	put("attempt", strconv.Itoa(ch.attempt), ch.attempt > 0)
	put("time", "abs", ch.absolute)
	put("q", ch.find, ch.find != "")
	put("from", ch.from, ch.from != "")
	return q.Encode()
}

func (ch choice) atStep(n int) choice {
	return choice{step: n, attempt: ch.attempt, absolute: ch.absolute}
}

func (ch choice) atLine(n int64) choice {
	ch.line = n
	return ch
}

func (ch choice) otherTime() choice {
	ch.absolute = !ch.absolute
	return ch
}

func (ch choice) atAttempt(n int) choice {
	return choice{step: ch.step, attempt: n, absolute: ch.absolute}
}

func (ch choice) withFind(text, from string) choice {
	ch.find, ch.from = text, from
	return ch
}
