package subprocess

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
)

// logLook is how often the size of the log is looked at.
const logLook = time.Minute

// LogBytes is how long a log may get, if nobody has said otherwise; an older part of at most that length is kept beside it.
const LogBytes = 10 << 20

// BoundLog keeps the log of a process within its bound, until the context ends.
func BoundLog(ctx context.Context, file string, limit int64, log *slog.Logger) {
	for {
		if err := shorten(file, limit); err != nil {
			log.Warn("a log cannot be shortened", "file", file, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(logLook):
		}
	}
}

// shorten moves a log that is too long into one older part and begins it anew. The writer keeps its descriptor and appends,
// so the file is emptied rather than renamed.
func shorten(file string, limit int64) error {
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
	// A writer gone wild may have written much more than the bound; its last words count.
	if _, err := in.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(out, io.LimitReader(in, limit)); err != nil {
		return err
	}
	return os.Truncate(file, 0)
}

// Tail is the end of a log, for an error.
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
