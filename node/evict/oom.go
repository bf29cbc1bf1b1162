package evict

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

// WatchOOM tells when the kernel kills a process because the whole machine has no memory left. It reads the kernel's log from
// now on until ctx ends; on a machine where that may not be read it returns why.
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
		if text := killed(string(buf[:n])); text != "" {
			tell(corev1.EventTypeWarning, "SystemOOM", text)
		}
	}
}

// killed reads a record of the kernel's log: one about a process killed for want of memory of the machine, not of a group, gives
// the words to tell, any other nothing.
func killed(record string) string {
	head, line, _ := strings.Cut(record, ";")
	// The number says who wrote the record; what is not the kernel's own anybody may have written.
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
