package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// LogOptions are the flags of "proa logs".
type LogOptions struct {
	Follow bool
	Lines  int // negative for all
	// From is the offset in the file before which nothing is shown.
	From int64
}

// followPause is the time between reads of a log that is followed.
const followPause = 200 * time.Millisecond

// ShowLog copies a log file and, if it is followed, what is added until ctx ends. A file that has become shorter was
// truncated, and is read from the start.
func ShowLog(ctx context.Context, w io.Writer, path string, o LogOptions) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no log yet: %s. A server that was not started by \"proa up\" logs to where it was started", path)
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	defer f.Close()
	start := int64(0)
	if o.Lines >= 0 {
		if start, err = lastLines(f, o.Lines); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
	}
	if info, err := f.Stat(); err == nil && o.From <= info.Size() { // else the log was truncated meanwhile
		start = max(start, o.From)
	}
	if _, err := f.Seek(start, io.SeekStart); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	for {
		if _, err := io.Copy(w, f); err != nil {
			return fmt.Errorf("show the log: %w", err)
		}
		if !o.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if info, err := f.Stat(); err == nil && info.Size() < at {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return fmt.Errorf("read the log: %w", err)
			}
		}
	}
}

// lastLines returns the offset at which the last n lines of a file begin.
func lastLines(f io.ReadSeeker, n int) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	block := make([]byte, 64<<10)
	found := 0
	for at := end; at > 0; {
		size := min(at, int64(len(block)))
		at -= size
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(f, block[:size]); err != nil {
			return 0, err
		}
		for i := size - 1; i >= 0; i-- {
			if block[i] != '\n' || at+i == end-1 { // the end of the last line is no beginning
				continue
			}
			if found++; found == n {
				return at + i + 1, nil
			}
		}
	}
	if n == 0 {
		return end, nil
	}
	return 0, nil
}

// Tail returns the last n lines of a log, of those behind an offset.
func Tail(path string, n int, from int64) string {
	var b strings.Builder
	if err := ShowLog(context.Background(), &b, path, LogOptions{Lines: n, From: from}); err != nil {
		return err.Error()
	}
	return strings.TrimRight(b.String(), "\n")
}

// failurePrefix begins the last line of a server that could not start or has failed, and of every other command that fails.
const failurePrefix = "proa: "

// Failure returns why the last server could not start, or has failed, as the end of its log has it; empty if it was stopped.
func (c Cluster) Failure() string {
	if info, err := os.Stat(c.LogFile()); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	var failure []string
	for line := range strings.Lines(Tail(c.LogFile(), 10, 0)) {
		line = strings.TrimSpace(line)
		text, failed := strings.CutPrefix(line, failurePrefix)
		switch {
		case failed:
			failure = []string{text}
		case strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "ready: ") || strings.HasPrefix(line, "kubeconfig: "):
			failure = nil // it is of a server that ran
		case failure != nil && line != "":
			failure = append(failure, line)
		}
	}
	return strings.Join(failure, " ")
}
