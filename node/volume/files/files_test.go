package files_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"proa.dev/node/volume/files"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScripts runs testdata/*.txt: commands, each followed by the content of the folder.
func TestScripts(t *testing.T) {
	all, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(all) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, name := range all {
		t.Run(filepath.Base(name), func(t *testing.T) { runScript(t, name) })
	}
}

func runScript(t *testing.T, name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			if strings.HasPrefix(line, "#") {
				out.WriteString(line)
			}
			continue
		}
		fmt.Fprintf(&out, "$ %s\n%s", command, runCommand(t, dir, strings.Fields(command)))
	}
	if *update {
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != string(text) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), text)
	}
}

// runCommand runs a command: write PATH[:MODE]=DATA..., or a change of the folder by others: mkdir, mkfile, link, remove.
func runCommand(t *testing.T, dir string, args []string) string {
	t.Helper()
	var err error
	switch args[0] {
	case "write":
		payload := map[string]files.File{}
		for _, a := range args[1:] {
			p, data, _ := strings.Cut(a, "=")
			p, mode, found := strings.Cut(p, ":")
			if !found {
				mode = "644"
			}
			m, err := strconv.ParseUint(mode, 8, 32)
			if err != nil {
				t.Fatal(err)
			}
			payload[p] = files.File{Data: []byte(data), Mode: fs.FileMode(m)}
		}
		ready := ""
		err = files.Write(dir, payload, func() error { ready = "ready\n"; return nil })
		if err == nil {
			return ready + listFolder(t, dir)
		}
	case "mkdir":
		err = os.MkdirAll(filepath.Join(dir, args[1]), 0o755)
	case "link":
		err = os.Symlink(args[2], filepath.Join(dir, args[1]))
	case "mkfile":
		err = os.WriteFile(filepath.Join(dir, args[1]), nil, 0o644)
	case "remove":
		err = os.RemoveAll(filepath.Join(dir, args[1]))
	default:
		t.Fatalf("unknown command: %v", args)
	}
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), dir, "DIR") + "\n"
	}
	return ""
}

var stamps = regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`)

// listFolder lists a folder. The names of versions are replaced by V1, V2 and so on.
func listFolder(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(p, dir+"/")
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		case info.IsDir():
			line += "/"
		default:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %v %s", info.Mode().Perm(), data)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n") + "\n"
	seen := map[string]bool{}
	for _, s := range stamps.FindAllString(text, -1) {
		seen[s] = true
	}
	for i, s := range slices.Sorted(maps.Keys(seen)) {
		text = strings.ReplaceAll(text, s, fmt.Sprintf("..V%d", i+1))
	}
	return text
}

// TestReadersSeeOneVersion reads while versions are written: both files must always be of the same version.
func TestReadersSeeOneVersion(t *testing.T) {
	dir := t.TempDir()
	write := func(n int) {
		data := []byte(strconv.Itoa(n))
		if err := files.Write(dir, map[string]files.File{"a": {Data: data, Mode: 0o644}, "b": {Data: data, Mode: 0o644}}, nil); err != nil {
			t.Error(err)
		}
	}
	write(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 300 {
			write(n + 1)
		}
	}()
	for {
		at, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
		if err == nil {
			a, errA := os.ReadFile(filepath.Join(at, "a"))
			b, errB := os.ReadFile(filepath.Join(at, "b"))
			if errA == nil && errB == nil && string(a) != string(b) {
				t.Fatalf("%s and %s are of two versions", a, b)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, p := range []string{"a", "a/b", "..a", "a/..", "/a", "", "./a", "a//b", ".", "...", "..data"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if files.Check(p) != nil || strings.ContainsRune(p, 0) {
			return
		}
		dir := t.TempDir()
		sentinel := filepath.Join(filepath.Dir(dir), "sentinel")
		if err := os.WriteFile(sentinel, []byte("unchanged"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := files.Write(dir, map[string]files.File{p: {Data: []byte("x"), Mode: 0o644}}, nil); err != nil {
			return
		}
		if got, err := os.ReadFile(filepath.Join(dir, p)); err != nil || string(got) != "x" {
			t.Errorf("%q: read %q, %v", p, got, err)
		}
		if got, err := os.ReadFile(sentinel); err != nil || string(got) != "unchanged" {
			t.Errorf("%q: a file outside was changed", p)
		}
	})
}
