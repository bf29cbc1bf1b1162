package eviction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// WatchOOM reports when the kernel kills a process because the whole machine is out of memory. It reads new records of
// the kernel log until ctx ends; if the log may not be read, it returns why.
func WatchOOM(ctx context.Context, tell func(eventType, reason, text string)) error {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("read the kernel's log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("read the kernel's log: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	buf := make([]byte, 8<<10)
	for {
		n, err := f.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EINVAL):
			continue // records were overwritten before they were read, or one is longer than the buffer
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		if text := oomMessage(string(buf[:n])); text != "" {
			tell(corev1.EventTypeWarning, "SystemOOM", text)
		}
	}
}

// oomMessage parses a record of the kernel log: for an OOM kill of the whole machine, not of a cgroup, it returns the
// message of the Event, otherwise nothing.
func oomMessage(record string) string {
	head, line, _ := strings.Cut(record, ";")
	// The facility is part of the number; other facilities than the kernel's can be written by any process.
	level, _, _ := strings.Cut(head, ",")
	if n, err := strconv.Atoi(level); err != nil || n>>3 != 0 {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	rest, ok := strings.CutPrefix(line, "oom-kill:")
	if !ok {
		return ""
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	_, global := fields["global_oom"]
	if !global && fields["oom_memcg"] != "/" {
		return ""
	}
	if pid, err := strconv.Atoi(fields["pid"]); err == nil && pid > 0 && fields["task"] != "" {
		return fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", fields["task"], pid)
	}
	return "System OOM encountered"
}
