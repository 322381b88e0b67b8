package service

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "smaps")
	text := `00400000-01256000 r-xp 00000000 fe:00 1                           /x/kici
Rss:                8856 kB
Private_Dirty:      8856 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
01256000-02136000 r--p 00e56000 fe:00 1                           /x/kici
Anonymous:             4 kB
02136000-02259000 rw-p 01d36000 fe:00 1                           /x/kici
Anonymous:             0 kB
02259000-02300000 r--p 01d36000 fe:00 1                           /x/kici
Anonymous:             0 kB
Swap:                  0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 2                   /x/other
Anonymous:             0 kB
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := cleanMappings(f, "/x/kici")
	if len(got) != 2 || got[0] != (mapping{0x400000, 0x1256000}) || got[1] != (mapping{0x2259000, 0x2300000}) {
		t.Errorf("%x", got)
	}
}
