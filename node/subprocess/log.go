package subprocess

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"proa.dev/internal/wait"
)

// logCheckPeriod is how often the size of the log is checked.
const logCheckPeriod = time.Minute

// MaxLogBytes is the default limit of a log; an older part of at most that size is kept beside it.
const MaxLogBytes = 10 << 20

// LimitLog limits the size of a process's log until the context ends.
func LimitLog(ctx context.Context, file string, limit int64, log *slog.Logger) {
	for {
		if err := truncateLog(file, limit); err != nil {
			log.Warn("a log cannot be shortened", "file", file, "error", err)
		}
		if wait.Sleep(ctx, logCheckPeriod) != nil {
			return
		}
	}
}

// truncateLog copies a log that is too long to one older file and truncates it. The process keeps its file descriptor and
// appends, so the file is truncated and not renamed.
func truncateLog(file string, limit int64) error {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() <= limit {
		return nil
	}
	if err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(file+".1", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	// A process may have written much more than the limit; the last part counts.
	if _, err := in.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(out, io.LimitReader(in, limit)); err != nil {
		return err
	}
	return os.Truncate(file, 0)
}

// Tail returns the end of a log, for an error message.
func Tail(file string) string {
	const most = 2000
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, info.Size()-most), io.SeekStart)
	}
	data, _ := io.ReadAll(io.LimitReader(f, most))
	return strings.TrimSpace(string(data))
}
