package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is the memory of a set of processes in bytes.
type usage struct{ rss, pss, anon int64 }

// read sums the memory of all processes. The resident set counts shared pages
// in every process, the proportional set shares them out; anonymous pages are
// what the program itself allocated, without the pages of its file.
func read(pids []int) (usage, error) {
	var sum usage
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return usage{}, fmt.Errorf("read memory: %w", err)
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
				sum.rss += n << 10
			case "Pss:":
				sum.pss += n << 10
			case "Anonymous:":
				sum.anon += n << 10
			}
		}
	}
	return sum, nil
}

// cpu sums the processor time, user and system, that processes have used.
func cpu(pids []int) (time.Duration, error) { return processorTime(pids, 2) }

// cpuWithChildren counts children too that have ended: programs that a process ran.
func cpuWithChildren(pids []int) (time.Duration, error) { return processorTime(pids, 4) }

// processorTime sums the first fields that the kernel keeps of the time of processes: user, system, and both of their children.
func processorTime(pids []int, count int) (time.Duration, error) {
	// The kernel counts in ticks of a hundredth of a second on every Linux
	// that Go runs on.
	const tick = 10 * time.Millisecond
	var sum time.Duration
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		// The command, in parentheses, may hold spaces.
		_, rest, ok := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 11+count {
			return 0, fmt.Errorf("read processor time of %d: unexpected format", pid)
		}
		for _, field := range fields[11 : 11+count] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

func idle(ctx context.Context, r *result, pids []int, set settings) error {
	if err := sleep(ctx, set.settle); err != nil {
		return err
	}
	before, err := cpu(pids)
	if err != nil {
		return err
	}
	if err := sleep(ctx, set.idle); err != nil {
		return err
	}
	after, err := cpu(pids)
	if err != nil {
		return err
	}
	if err := memory(r, pids, "idle"); err != nil {
		return err
	}
	r.add("CPU, idle", "% of a core", 100*float64(after-before)/float64(set.idle), lower)
	return nil
}

func memory(r *result, pids []int, when string) error {
	u, err := read(pids)
	if err != nil {
		return err
	}
	const mega = 1 << 20
	r.add("memory (RSS), "+when, "MiB", float64(u.rss)/mega, lower)
	r.add("memory (PSS), "+when, "MiB", float64(u.pss)/mega, lower)
	r.add("memory (anonymous), "+when, "MiB", float64(u.anon)/mega, lower)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// loadAverage is how many processes wanted to run in the last minute.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// totalMemory is the memory of the machine in GiB.
func totalMemory() string {
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
