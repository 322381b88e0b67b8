package baremetal

import (
	"strings"
	"testing"
)

// XS-28, BM-8, BM-9: how a path becomes a command line, or is refused.
func TestXS28BatchFiles(t *testing.T) {
	const start = `C:\Windows\System32\cmd.exe /d /e:on /v:off /c call `
	for _, c := range []struct{ path, line, refused string }{
		{`C:\kici\agent.cmd`, start + `C:\kici\agent.cmd agent <NUL`, ""},
		{`C:\kici\AGENT.BaT`, start + `C:\kici\AGENT.BaT agent <NUL`, ""},
		{`C:\Program Files\kici\agent.cmd`, start + `"C:\Program Files\kici\agent.cmd" agent <NUL`, ""},
		{"C:\\a\tb\\agent.cmd", start + "\"C:\\a\tb\\agent.cmd\" agent <NUL", ""},
		{`C:\Program Files (x86)\kici\agent.cmd`, start + `"C:\Program Files (x86)\kici\agent.cmd" agent <NUL`, ""},
		{`C:\a & b\agent.cmd`, start + `"C:\a & b\agent.cmd" agent <NUL`, ""},
		{`C:\100%\agent.cmd`, "", `'%'`},
		{`C:\100 %\agent.cmd`, "", `'%'`},
		{`C:\a^b c\agent.bat`, "", `'^'`},
		{`C:\a"b\agent.bat`, "", `'"'`},
		{`C:\a&b\agent.cmd`, "", `'&'`},
		{`C:\a|b\agent.cmd`, "", `'|'`},
		{`C:\a<b\agent.cmd`, "", `'<'`},
		{`C:\a>b\agent.cmd`, "", `'>'`},
		{`C:\x(86)\agent.cmd`, "", `'('`},
		{`C:\x86)\agent.cmd`, "", `')'`},
		{`C:\a,b\agent.cmd`, "", `','`},
		{`C:\a;b\agent.cmd`, "", `';'`},
		{`C:\a=b\agent.cmd`, "", `'='`},
		{`C:\a!b\agent.cmd`, start + `C:\a!b\agent.cmd agent <NUL`, ""}, // /v:off
	} {
		err := batchFault(c.path)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.path, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		if got := batchLine(`C:\Windows\System32\cmd.exe`, c.path, "agent"); got != c.line {
			t.Errorf("%s:\n got %s\nwant %s", c.path, got, c.line)
		}
	}
	for _, other := range []string{`C:\a&b\agent.exe`, `C:\%x%\agent`, `/a&b/agent`, `C:\a.cmd\agent.exe`} {
		if err := batchFault(other); err != nil || isBatch(other) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestCmdExe(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{nil, `C:\Windows\System32\cmd.exe`},
		{[]string{`SystemRoot=D:\W\`}, `D:\W\System32\cmd.exe`},
		{[]string{`ComSpec=E:\own\CMD.EXE`, `SystemRoot=D:\W`}, `E:\own\CMD.EXE`},
		{[]string{`COMSPEC=E:\4nt\4nt.exe`, `systemroot=D:\W`}, `D:\W\System32\cmd.exe`},
		{[]string{`COMSPEC=cmd.exe`}, `cmd.exe`},
		{[]string{`COMSPEC=E:\notcmd.exe`}, `C:\Windows\System32\cmd.exe`},
	} {
		if got := cmdExe(c.environ); got != c.want {
			t.Errorf("%v: %s", c.environ, got)
		}
	}
}

// XS-83: what taskkill says.
func TestXS83Taskkill(t *testing.T) {
	for _, c := range []struct {
		code  int
		said  string
		ended bool
		err   string
	}{
		{0, "", true, ""},
		{128, "ERROR: The process \"7\" not found.", false, ""},
		{1, "ERROR: Access is denied.\r\n", false, "taskkill exited with 1: ERROR: Access is denied."},
		{255, "", false, "taskkill exited with 255"},
		{-1, strings.Repeat("x", 1000), false, "taskkill exited with -1: " + strings.Repeat("x", 300) + "…"},
	} {
		ended, err := taskkillResult(c.code, c.said)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if ended != c.ended || text != c.err {
			t.Errorf("%d: %t %s", c.code, ended, text)
		}
	}
}
