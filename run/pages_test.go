package run

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestProgramSpans(t *testing.T) {
	const file = `00400000-0207d000 r-xp 00000000 fe:00 9994891                            /usr/bin/a program
Size:              29172 kB
Rss:               24628 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd 
0207d000-04188000 r--p 01c7d000 fe:00 9994891                            /usr/bin/a program
Rss:               28844 kB
Anonymous:             %d kB
04188000-0423e000 rw-p 03d88000 fe:00 9994891                            /usr/bin/a program
Anonymous:             0 kB
0423e000-06279000 rw-p 00000000 00:00 0 
Anonymous:             0 kB
7fb615d80000-7fb615e00000 r--p 00000000 fe:00 12                         /usr/lib/a program
Anonymous:             0 kB
7fff0f9f1000-7fff0f9f3000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
`
	for _, c := range []struct {
		changed int
		exe     string
		want    string
	}{
		{0, "/usr/bin/a program", "[{4194304 34066432} {34066432 68714496}]"},
		{4, "/usr/bin/a program", "[{4194304 34066432}]"},
		{0, "/usr/bin/another", "[]"},
	} {
		if got := fmt.Sprint(programSpans(strings.NewReader(fmt.Sprintf(file, c.changed)), c.exe)); got != c.want {
			t.Errorf("%s with %d kB changed: got %s, want %s", c.exe, c.changed, got, c.want)
		}
	}
}

func TestRest(t *testing.T) {
	const work, rests = littleWork + 1, littleWork
	r := rest{looks: pause}
	at := map[int]bool{}
	for look := range 40 {
		spent := rests
		// A long start, and work when it would be time again.
		if look < 2 || look > 12 && look < 17 {
			spent = work
		}
		if r.due(r.used + spent) {
			at[look] = true
		}
	}
	if want := "map[2:true 17:true 29:true]"; fmt.Sprint(at) != want {
		t.Errorf("let go at the looks %v, want %s", at, want)
	}
}

// TestLetGo does it to the program of the test, which then must still run.
func TestLetGo(t *testing.T) {
	before := filePages(t)
	letGo()
	after := filePages(t)
	if after >= before {
		t.Errorf("%d pages of files were mapped, %d afterwards", before, after)
	}
}

// filePages is how many pages of files this process has mapped.
func filePages(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var size, resident, shared int
	if _, err := fmt.Sscan(string(data), &size, &resident, &shared); err != nil {
		t.Fatal(err)
	}
	return shared
}

// TestGarbage holds that a process at rest collects only what is worth it.
func TestGarbage(t *testing.T) {
	var g garbage
	for _, c := range []struct {
		what            string
		allocated, live uint64
		want            bool
	}{
		{"after the start", 30 << 20, 10 << 20, true},
		{"nothing since", 31 << 20, 10 << 20, false},
		{"some work since", 40 << 20, 10 << 20, true},
		{"a large heap", 400 << 20, 300 << 20, false},
		{"a heap that has become small", 401 << 20, 10 << 20, true},
	} {
		if got := g.worth(c.allocated, c.live); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
