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

// The defaults of a log.
const (
	DefaultMaxSize  = 10 << 20
	DefaultMaxFiles = 5
	rotateEvery     = 10 * time.Second
)

// Writing knows the containers that write logs.
type Writing interface {
	// Logs returns the logs of the running containers.
	Logs(ctx context.Context) ([]Log, error)
	// Reopen makes the runtime write to a new file.
	Reopen(ctx context.Context, id string) error
}

// Rotator limits the size of logs.
type Rotator struct {
	Writing Writing
	// MaxSize is the size in bytes from which on a file is rotated; 0 for the default, negative for never.
	MaxSize int64
	// MaxFiles is the number of files of a log, at least two; 0 for the default.
	MaxFiles int
	Log      *slog.Logger
}

// Run checks the sizes of logs periodically and rotates them until ctx ends.
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
			r.rotateAll(ctx)
		}
	}
}

func (r *Rotator) rotateAll(ctx context.Context) {
	all, err := r.Writing.Logs(ctx)
	if err != nil {
		r.Log.WarnContext(ctx, "cannot look at the logs of containers", "err", err)
		return
	}
	for _, l := range all {
		if err := r.rotateIfLarge(ctx, l); err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "cannot rotate a log", "container", l.ID, "path", l.Path, "err", err)
		}
	}
}

// rotateIfLarge rotates a log if it has grown too large.
func (r *Rotator) rotateIfLarge(ctx context.Context, l Log) error {
	size := r.MaxSize
	if size == 0 {
		size = DefaultMaxSize
	}
	info, err := os.Lstat(l.Path)
	if isNotExist(err) {
		// An earlier rotation was interrupted after the file had been moved away.
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

// rotate deletes the oldest files, compresses those of earlier rotations, and moves the newest file away. The newest is
// compressed only the next time, because it may still be written to or read.
func (r *Rotator) rotate(ctx context.Context, l Log) error {
	files, rubbish, err := rotated(l.Path)
	if err != nil {
		return fmt.Errorf("list the files of %s: %w", l.Path, err)
	}
	most := r.MaxFiles
	if most == 0 {
		most = DefaultMaxFiles
	}
	// Beside those that stay there will be the file that is moved away now, and the new one.
	excess := min(max(len(files)-max(most-2, 0), 0), len(files))
	for _, f := range append(rubbish, files[:excess]...) {
		if err := os.Remove(f); err != nil && !isNotExist(err) {
			return err
		}
	}
	for _, f := range files[excess:] {
		if strings.HasSuffix(f, gzipSuffix) {
			continue
		}
		if err := compress(f); err != nil {
			return fmt.Errorf("compress %s: %w", f, err)
		}
	}
	away := l.Path + "." + nextSuffix(l.Path, files, time.Now())
	if err := os.Rename(l.Path, away); err != nil {
		return err
	}
	if err := r.Writing.Reopen(ctx, l.ID); err != nil {
		// It is moved back, so that the next rotation can try again.
		return errors.Join(fmt.Errorf("reopen the log: %w", err), os.Rename(away, l.Path))
	}
	return nil
}

// nextSuffix returns a suffix that sorts behind those of all earlier rotated files, even for two in one second, or when the
// clock was set back.
func nextSuffix(path string, files []string, now time.Time) string {
	stamp := now.Format(rotatedLayout)
	if len(files) == 0 {
		return stamp
	}
	last := strings.TrimSuffix(files[len(files)-1][len(path)+1:], gzipSuffix)
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

// compress replaces a file by a compressed one. At any moment one of them exists and is complete.
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
	tmp := path + tmpSuffix
	if err := os.Remove(tmp); err != nil && !isNotExist(err) {
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
	// Readers check the modification time to see whether the file may have what they want.
	if err = os.Chtimes(tmp, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	if err = os.Rename(tmp, path+gzipSuffix); err != nil {
		return err
	}
	return os.Remove(path)
}
