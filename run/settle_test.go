package run

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestProgramPages: only parts of the program itself that cannot have been written to are given back.
func TestProgramPages(t *testing.T) {
	const exe = "/opt/proa"
	for line, want := range map[string][2]uintptr{
		"00400000-01fc6000 r-xp 00000000 fe:00 118                      /opt/proa":           {0x400000, 0x1fc6000},
		"01fc6000-0403b000 r--p 01bc6000 fe:00 118                      /opt/proa":           {0x1fc6000, 0x403b000},
		"0403b000-040ec000 rw-p 03c3b000 fe:00 118                      /opt/proa":           {},
		"00400000-01fc6000 r-xp 00000000 fe:00 118                      /opt/proa (deleted)": {},
		"00400000-01fc6000 r--p 00000000 fe:00 118                      /lib/libc.so":        {},
		"00400000-01fc6000 r--s 00000000 fe:00 118                      /opt/proa":           {},
		"c000000000-c004000000 rw-p 00000000 00:00 0":                                        {},
		"xyz-01fc6000 r--p 00000000 fe:00 118 /opt/proa":                                     {},
		"02fc6000-01fc6000 r--p 00000000 fe:00 118 /opt/proa":                                {},
		"": {},
	} {
		from, to, ok := programPages(line, exe)
		if got := [2]uintptr{from, to}; got != want || ok != (want != [2]uintptr{}) {
			t.Errorf("%q: got %x, %v, want %x", line, got, ok, want)
		}
	}
}

// TestSettle: a program has fewer pages of its file in memory afterwards, and goes on.
func TestSettle(t *testing.T) {
	before := filePages(t)
	settle()
	if after := filePages(t); after >= before {
		t.Errorf("%d KiB of files are in memory, and were %d", after, before)
	}
}

// filePages is how much of files is in the memory of this process, in KiB.
func filePages(t *testing.T) (size int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc")
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &size); err == nil {
			return size
		}
	}
	t.Skip("the kernel does not say")
	return 0
}
