package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/cli/command"
	host "proa.dev/node/preflight"
)

func TestShowChecks(t *testing.T) {
	passing := []host.Row{{Name: "kernel", State: host.OK, Finding: "6.1"}, {Name: "veth", State: host.OK}}
	failing := append(passing, host.Row{Name: "swap", State: host.Note, Finding: "1 GiB", Remedy: "swapoff -a"},
		host.Row{Name: "runc", State: host.Missing, Finding: "not there", Remedy: "make build"})
	for _, c := range []struct {
		rows   []host.Row
		format string
		want   string
		code   error
	}{
		{passing, "", "ok  kernel  6.1\nok  veth\n\nThis host can run nodes.\n", nil},
		{failing, "", "ok       kernel  6.1\nok       veth\nnote     swap    1 GiB\n                 → swapoff -a\nmissing  runc    not there\n                 → make build\n\nThis host cannot run nodes: one thing is missing.\n", command.ExitCode(1)},
		{passing[:1], "json", "{\n  \"ready\": true,\n  \"rows\": [\n    {\n      \"name\": \"kernel\",\n      \"state\": \"ok\",\n      \"says\": \"6.1\"\n    }\n  ]\n}\n", nil},
	} {
		var b strings.Builder
		err := showChecks(&b, c.rows, c.format)
		if b.String() != c.want || !errors.Is(err, c.code) {
			t.Errorf("shows\n%s%v\nwant\n%s%v", b.String(), err, c.want, c.code)
		}
	}
}

func TestNoColoursInFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := colourFunc(file)(host.Missing, "missing"); got != "missing" {
		t.Errorf("painted %q into a file", got)
	}
}
