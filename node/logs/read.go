package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Log is the log of one run of a container.
type Log struct {
	Path string
	// ID is the container ID, by which the end of a followed log is known.
	ID string
}

// Reader reads logs. The zero value reads existing logs; to follow logs it needs its fields.
type Reader struct {
	Ends ContainerEnds
	// Notify reports changes. Without it, followed logs are polled every second.
	Notify *Notify
}

// Read writes the wanted part of a log to out, and calls flush when more may take a while.
func (r *Reader) Read(ctx context.Context, l Log, o Options, out io.Writer, flush func()) error {
	path := l.Path
	var c logChanges
	if o.Follow {
		var stop func()
		c, stop = r.watch(filepath.Dir(path)) // before the first read, so that no change is missed
		defer stop()
	}
	f, err := open(path)
	if err != nil {
		return fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	p := &printer{Options: o, out: bufio.NewWriterSize(out, 32<<10), flush: flush, within: map[Stream]bool{}}
	err = r.read(ctx, path, l.ID, &f, p, c)
	if errors.Is(err, errLimit) {
		err = nil
	}
	if e := p.send(); err == nil {
		err = e
	}
	return err
}

func (r *Reader) read(ctx context.Context, path, id string, f **file, p *printer, c logChanges) error {
	older, at, size, err := begin(path, *f, p.Options)
	if err != nil {
		return err
	}
	for _, o := range older {
		if err := p.printRotated(ctx, o); err != nil {
			return err
		}
	}
	if _, err := (*f).Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("failed to seek %d in log file %q: %w", at, path, err)
	}
	if !p.Follow {
		// What is written meanwhile is not read, otherwise the log of a busy container would never end.
		(*f).lines.Reset(io.LimitReader((*f).File, size-at))
		_, err := p.printFile(ctx, *f, nil)
		return err
	}
	(*f).lines.Reset((*f).File)
	return r.follow(ctx, path, id, f, p, c)
}

// part is a rotated file of a log, of which the first lines are skipped.
type part struct {
	path string
	skip int64
}

// begin determines where to begin: in which rotated files, and where in the newest one.
func begin(path string, f *file, o Options) (older []part, at, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, 0, err
	}
	size = info.Size()
	want := o.Tail
	if want >= 0 {
		var have int64
		if at, have, err = tail(f.File, size, want); err != nil {
			return nil, 0, 0, fmt.Errorf("failed to tail %d lines of log file %q: %w", want, path, err)
		}
		if want -= have; want == 0 {
			return nil, at, size, nil
		}
	}
	names, _, err := rotated(path)
	if err != nil {
		return nil, 0, 0, err
	}
	for _, name := range slices.Backward(names) {
		if i, err := os.Stat(name); err != nil || os.SameFile(i, info) || olderThan(name, o.Since) {
			continue // it has just been rotated, or is too old
		}
		p := part{path: name}
		if o.Tail >= 0 {
			n, err := lines(name)
			if err != nil {
				continue // it is being compressed or removed
			}
			p.skip = max(n-want, 0)
			want -= min(n, want)
		}
		older = append(older, p)
		if o.Tail >= 0 && want == 0 {
			break
		}
	}
	slices.Reverse(older)
	return older, at, size, nil
}

func lines(path string) (int64, error) {
	f, err := open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return f.count()
}

// follow prints what there is and what is appended, until the container has ended and everything is printed.
func (r *Reader) follow(ctx context.Context, path, id string, f **file, p *printer, c logChanges) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := r.ended(ctx, id)
	over := false
	var rest []byte
	for {
		var err error
		if rest, err = p.printFile(ctx, *f, rest); err != nil {
			return err
		}
		next, err := successor(path, *f)
		if err != nil {
			return err
		}
		if next != nil {
			// The runtime writes to the new file only after it has closed the old one.
			if rest, err = p.printFile(ctx, *f, rest); err == nil {
				err = p.print(rest)
			}
			_ = (*f).Close()
			*f, rest = next, nil
			if err != nil {
				return err
			}
			continue
		}
		if err := p.send(); err != nil || over {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			over = true // but there may be a last line
		case <-c.signalled:
		case <-c.tick:
		}
	}
}

func (r *Reader) ended(ctx context.Context, id string) <-chan struct{} {
	if r.Ends == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	return r.Ends.Ended(ctx, id)
}

// logChanges says when to read a log again. One of its channels is nil.
type logChanges struct {
	signalled <-chan struct{}
	tick      <-chan time.Time
}

// watch reports changes in a folder.
func (r *Reader) watch(dir string) (logChanges, func()) {
	if r.Notify != nil {
		if signalled, stop, err := r.Notify.watch(dir); err == nil {
			return logChanges{signalled: signalled}, stop
		}
	}
	t := time.NewTicker(time.Second)
	return logChanges{tick: t.C}, t.Stop
}

// successor opens the file that has replaced f and is written to; nil if there is none.
func successor(path string, f *file) (*file, error) {
	now, err := os.Stat(path)
	if err != nil || now.Size() == 0 {
		return nil, nil //nolint:nilerr // the file is being rotated or removed
	}
	was, err := f.Stat()
	if err != nil || os.SameFile(now, was) {
		return nil, err
	}
	next, err := open(path)
	if isNotExist(err) {
		return nil, nil // it is being replaced
	}
	return next, err
}
