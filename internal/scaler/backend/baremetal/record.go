package baremetal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// record is what is known of an agent: its file in the agent's directory, and what the ledger keeps in agents.launch.
type record struct {
	Scaler string `json:"scaler"`
	Work   string `json:"work"`             // the agent's own directory
	Cgroup string `json:"cgroup,omitempty"` // leaf, '' = none
	// How its limits are enforced, if they are: a scope unit of the system's or the user's manager, or folders of cgroup v1 by controller.
	Unit    string            `json:"unit,omitempty"`
	Manager string            `json:"manager,omitempty"`
	Folders map[string]string `json:"folders,omitempty"`
	Pid     int               `json:"pid,omitempty"`
	Start   uint64            `json:"start,omitempty"` // field 22 of /proc/<pid>/stat
	Boot    string            `json:"boot,omitempty"`  // boot id, without which pid and start mean nothing
	Ready   bool              `json:"ready,omitempty"` // the token was handed over
}

const (
	recordFile = "agent.json"
	logFile    = "agent.log"
	workFolder = "work"
	newPrefix  = ".new-"
)

// agentID is what an agent's id looks like; it becomes a path, so nothing else passes.
var agentID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,127}$`) })

// encode never fails: the fields are plain.
func (r record) encode() json.RawMessage {
	data, _ := json.Marshal(r)
	return data
}

func (r record) write(dir string) error {
	path := filepath.Join(dir, recordFile)
	if err := os.WriteFile(path+".tmp", r.encode(), 0o600); err != nil {
		return err
	}
	return shared(func() error { return os.Rename(path+".tmp", path) })
}

// halfMade is where an agent's directory is made. The name is the agent's, so that whoever creates or deletes the agent after a
// crash meets what was left.
func halfMade(dir string) string {
	return filepath.Join(filepath.Dir(dir), newPrefix+filepath.Base(dir))
}

// create makes the agent's directory with the record in it, at once, so that no directory is without one.
func (r record) create(dir string) error {
	tmp := halfMade(dir)
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	if err := r.write(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// errNoRecord is a file that is no record, as a crash of the machine can leave one.
var errNoRecord = errors.New("it is no record of an agent")

// readRecord reads an agent's record; ok is false when there is none.
func readRecord(dir string) (r record, ok bool, err error) {
	var data []byte
	err = shared(func() (err error) {
		data, err = os.ReadFile(filepath.Join(dir, recordFile))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil && (json.Unmarshal(data, &r) != nil || r.Scaler == "") {
		err = fmt.Errorf("%s: %w", dir, errNoRecord)
	}
	if err != nil {
		return record{}, false, fmt.Errorf("read agent record: %w", err)
	}
	return r, true, nil
}

// Bounds of an agent's output file.
const (
	maxLogBytes  = 4 << 20
	keepLogBytes = 64 << 10
	maxTailLines = 50
)

// trimLog keeps the end of a log that grew too long. The agent appends, so it writes on after what is kept.
func trimLog(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= maxLogBytes {
		return ignoreMissing(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	defer f.Close()
	end, err := readEnd(f, keepLogBytes)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteString("… earlier output was dropped\n" + end)
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tail returns the last lines of a log.
func tail(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := readEnd(f, keepLogBytes)
	if err != nil || strings.TrimSpace(text) == "" {
		return nil
	}
	lines := strings.Split(strings.TrimRight(strings.ToValidUTF8(text, "�"), "\n"), "\n")
	return lines[max(0, len(lines)-maxTailLines):]
}

// readEnd reads the last n bytes, from the start of a line.
func readEnd(f *os.File, n int64) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	from := max(0, info.Size()-n)
	data, err := io.ReadAll(io.NewSectionReader(f, from, n))
	if err != nil {
		return "", err
	}
	text := string(data)
	if from > 0 {
		if _, rest, ok := strings.Cut(text, "\n"); ok {
			text = rest
		}
	}
	return text, nil
}

// removeTree removes a directory, also where its folders were made unwritable (module caches do that). It never follows links.
func removeTree(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return ignoreMissing(err)
	}
	defer func() { _ = root.Close() }()
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(name, 0o700) // what stays unwritable is reported by the second attempt
		}
		return nil
	})
	return os.RemoveAll(path)
}

func short(id string) string {
	id = strings.ReplaceAll(id, "-", "")
	return id[max(0, len(id)-12):] // the random end of a UUIDv7
}
