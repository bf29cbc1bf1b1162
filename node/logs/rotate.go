package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

// The usual bounds of a log.
const (
	DefaultMaxSize  = 10 << 20
	DefaultMaxFiles = 5
	rotateEvery     = 10 * time.Second
)

// Writing is what is known of the runs of containers that write logs.
type Writing interface {
	// Logs are those of the containers that run.
	Logs(ctx context.Context) ([]Log, error)
	// Reopen makes the runtime write to a new file.
	Reopen(ctx context.Context, id string) error
}

// Rotator keeps logs from growing without end.
type Rotator struct {
	Writing Writing
	// MaxSize is the size in bytes from which on a file is rotated; 0 for the usual one, negative for never.
	MaxSize int64
	// MaxFiles is the number of files of a log, at least two; 0 for the usual one.
	MaxFiles int
	Log      *slog.Logger
}

// Run rotates logs until ctx ends. Files do not tell when they have grown, so it looks at them from time to time.
func (r *Rotator) Run(ctx context.Context) {
	if r.MaxSize < 0 {
		return
	}
	tick := time.NewTicker(rotateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.look(ctx)
		}
	}
}

func (r *Rotator) look(ctx context.Context) {
	all, err := r.Writing.Logs(ctx)
	if err != nil {
		r.Log.WarnContext(ctx, "cannot look at the logs of containers", "err", err)
		return
	}
	for _, l := range all {
		if err := r.one(ctx, l); err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "cannot rotate a log", "container", l.ID, "path", l.Path, "err", err)
		}
	}
}

// one rotates a log if it has grown too large.
func (r *Rotator) one(ctx context.Context, l Log) error {
	size := r.MaxSize
	if size == 0 {
		size = DefaultMaxSize
	}
	info, err := os.Lstat(l.Path)
	if gone(err) {
		// A rotation was cut short after the file had been moved away.
		return r.Writing.Reopen(ctx, l.ID)
	}
	if err != nil {
		return err
	}
	if info.Size() < size {
		return nil
	}
	return r.rotate(ctx, l)
}

// rotate makes room, compresses what is left of older rotations, and moves the newest file away. The newest is compressed
// only the next time: somebody may still write to it, or read it.
func (r *Rotator) rotate(ctx context.Context, l Log) error {
	files, rubbish, err := rotated(l.Path)
	if err != nil {
		return fmt.Errorf("list the files of %s: %w", l.Path, err)
	}
	most := r.MaxFiles
	if most == 0 {
		most = DefaultMaxFiles
	}
	// Beside those that stay there will be the one that is moved away now, and the new one.
	excess := min(max(len(files)-max(most-2, 0), 0), len(files))
	for _, f := range append(rubbish, files[:excess]...) {
		if err := os.Remove(f); err != nil && !gone(err) {
			return err
		}
	}
	for _, f := range files[excess:] {
		if strings.HasSuffix(f, zipped) {
			continue
		}
		if err := compress(f); err != nil {
			return fmt.Errorf("compress %s: %w", f, err)
		}
	}
	away := l.Path + "." + after(l.Path, files, time.Now())
	if err := os.Rename(l.Path, away); err != nil {
		return err
	}
	if err := r.Writing.Reopen(ctx, l.ID); err != nil {
		// It is moved back, so that the next rotation can try again.
		return errors.Join(fmt.Errorf("reopen the log: %w", err), os.Rename(away, l.Path))
	}
	return nil
}

// after is an ending that sorts behind those of all files that were rotated before, even two in a second, or when the clock
// was set back.
func after(path string, files []string, now time.Time) string {
	stamp := now.Format(rotatedLayout)
	if len(files) == 0 {
		return stamp
	}
	last := strings.TrimSuffix(files[len(files)-1][len(path)+1:], zipped)
	if len(last) > len(stamp) {
		stamp = max(stamp, last[:len(stamp)])
	} else {
		stamp = max(stamp, last)
	}
	name := stamp
	for i := 1; name <= last; i++ {
		name = fmt.Sprintf("%s-%03d", stamp, i)
	}
	return name
}

// compress replaces a file by a compressed one. At any moment one of them is there and whole.
func compress(path string) (err error) {
	from, err := openFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	tmp := path + unfinished
	if err := os.Remove(tmp); err != nil && !gone(err) {
		return err
	}
	to, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		_ = to.Close()
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	z := gzip.NewWriter(to)
	if _, err = io.Copy(z, from); err != nil {
		return err
	}
	if err = z.Close(); err != nil {
		return err
	}
	if err = to.Close(); err != nil {
		return err
	}
	// A reader finds out from this whether the file may hold what it wants.
	if err = os.Chtimes(tmp, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	if err = os.Rename(tmp, path+zipped); err != nil {
		return err
	}
	return os.Remove(path)
}
