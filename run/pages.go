package run

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// lookEvery is how often a process looks at whether it rests.
	lookEvery = 5 * time.Second
	// littleWork is the processor time within lookEvery up to which it rests.
	littleWork = lookEvery / 20
	// pause is how many looks are between two times that a resting process lets go.
	pause = int(time.Minute / lookEvery)
)

// LetGo gives back memory while the process rests, until ctx ends: its garbage, and the pages of its own program. Nearly all of the latter
// served the start or work that is over, and as long as they are mapped the kernel counts them as memory in use and is slow to take
// them for others. It keeps them in its cache of files, from where a page that is needed once more comes back in microseconds.
func LetGo(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var g garbage
	for r := (rest{looks: pause}); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil && r.due(time.Duration(u.Utime.Nano()+u.Stime.Nano())) {
			letGo()
			g.letGo()
		}
	}
}

// garbage is the memory that a process has used and does not need any more. After work that is over, such as the start, Go's collector
// waits until as much again is allocated, which at rest takes very long.
type garbage struct{ allocated uint64 }

const (
	// muchGarbage is what must have been allocated since the last time for it to be worth a collection.
	muchGarbage = 4 << 20
	// largeHeap is the live memory from which on a collection is too much work for a process at rest.
	largeHeap = 256 << 20
)

// letGo collects the garbage and gives its pages back, if there may be some and it is little work.
func (g *garbage) letGo() {
	now := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(now)
	if g.worth(now[0].Value.Uint64(), now[1].Value.Uint64()) {
		debug.FreeOSMemory()
	}
}

// worth takes how much was allocated since the process began, and how much is in use.
func (g *garbage) worth(allocated, live uint64) bool {
	if allocated-g.allocated < muchGarbage || live > largeHeap {
		return false
	}
	g.allocated = allocated
	return true
}

// rest knows how much a process has done.
type rest struct {
	used  time.Duration
	looks int // since it last let go
}

// due takes the processor time used so far, and says that it is time to let go.
func (r *rest) due(used time.Duration) bool {
	rests := used-r.used <= littleWork
	r.used = used
	r.looks++
	if !rests || r.looks < pause {
		return false
	}
	r.looks = 0
	return true
}

// letGo does nothing where the kernel does not tell what is mapped: it only saves.
func letGo() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	for _, s := range programSpans(f, exe) {
		// A span that is locked into memory is refused, and stays.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.from, s.to-s.from, syscall.MADV_DONTNEED)
	}
}

// memorySpan is a piece of the address space.
type memorySpan struct{ from, to uintptr }

// programSpans finds in the kernel's list of what is mapped the parts of a program that are as they are in its file. A debugger
// or a probe changes the code, in pages that are no longer the file's; letting go of them would take that back.
func programSpans(smaps io.Reader, exe string) []memorySpan {
	var out []memorySpan
	var now memorySpan
	ours := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) >= 5 && !strings.HasSuffix(f[0], ":"):
			_, err := fmt.Sscanf(f[0], "%x-%x", &now.from, &now.to)
			ours = err == nil && strings.HasPrefix(f[1], "r-") && strings.HasSuffix(lines.Text(), " "+exe)
		case ours && len(f) >= 2 && f[0] == "Anonymous:":
			if n, err := strconv.Atoi(f[1]); err == nil && n == 0 {
				out = append(out, now)
			}
			ours = false
		}
	}
	return out
}
