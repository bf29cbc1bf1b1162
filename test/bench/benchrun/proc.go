package benchrun

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proa.dev/internal/wait"
)

// Usage is the memory of a set of processes in bytes.
type Usage struct{ RSS, PSS, Anon int64 }

// ReadUsage sums the memory of processes. Anonymous memory is what the programs have allocated. RSS counts shared pages
// in every process and pages of files; PSS shares them out.
func ReadUsage(pids []int) (Usage, error) {
	var sum Usage
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return Usage{}, fmt.Errorf("read memory: %w", err)
		}
		for line := range bytes.Lines(data) {
			fields := strings.Fields(string(line))
			if len(fields) < 2 {
				continue
			}
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				continue
			}
			switch fields[0] {
			case "Rss:":
				sum.RSS += n << 10
			case "Pss:":
				sum.PSS += n << 10
			case "Anonymous:":
				sum.Anon += n << 10
			}
		}
	}
	return sum, nil
}

// ProcessorTime sums the processor time, user and system, that processes have used.
func ProcessorTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		var used unix.Timespec
		// The clock that counts the processor time of all threads of a process: see CPUCLOCK_SCHED of Linux.
		if err := unix.ClockGettime(int32(^pid<<3|2), &used); err != nil {
			return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(used.Nano())
	}
	return sum, nil
}

// ProcessorTimeWithChildren also counts children that have ended, such as programs that a process ran, in hundredths of a second.
func ProcessorTimeWithChildren(pids []int) (time.Duration, error) {
	const tick = 10 * time.Millisecond // that of every Linux that Go runs on
	const first, count = 11, 4         // the times of the process in user and system mode, and those of its children
	var sum time.Duration
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		// The command, in parentheses, may hold spaces.
		_, rest, ok := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < first+count {
			return 0, fmt.Errorf("read processor time of %d: unexpected format", pid)
		}
		for _, field := range fields[first : first+count] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

// MeasureIdle measures the memory and the processor time of an idle system.
func MeasureIdle(ctx context.Context, r *Result, pids []int, set Settings) error {
	if err := wait.Sleep(ctx, set.Settle); err != nil {
		return err
	}
	before, err := ProcessorTime(pids)
	if err != nil {
		return err
	}
	if err := wait.Sleep(ctx, set.Idle); err != nil {
		return err
	}
	after, err := ProcessorTime(pids)
	if err != nil {
		return err
	}
	if err := AddMemory(r, pids, "idle"); err != nil {
		return err
	}
	r.Add("CPU, idle", "% of a core", 100*float64(after-before)/float64(set.Idle), Lower)
	return nil
}

// AddMemory adds rows with the memory of processes, anonymous memory first.
func AddMemory(r *Result, pids []int, when string) error {
	u, err := ReadUsage(pids)
	if err != nil {
		return err
	}
	const mega = 1 << 20
	r.Add("memory (anonymous), "+when, "MiB", float64(u.Anon)/mega, Lower)
	r.Add("memory (RSS), "+when, "MiB", float64(u.RSS)/mega, Lower)
	r.Add("memory (PSS), "+when, "MiB", float64(u.PSS)/mega, Lower)
	return nil
}

// LoadAverage returns the load average of the last minute.
func LoadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// TotalMemory returns the memory of the machine in GiB.
func TotalMemory() string {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) > 1 && fields[0] == "MemTotal:" {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return fmt.Sprintf("%.0f GiB", float64(n)/(1<<20))
		}
	}
	return "unknown"
}
