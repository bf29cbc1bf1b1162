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
	// ID is the run's, to know when a log that is followed has ended.
	ID string
}

// Reader reads logs. Its zero value reads what is there; to follow logs it needs its fields.
type Reader struct {
	Life Life
	// Notify tells of changes. Without one, logs that are followed are looked at every second.
	Notify *Notify
}

// Read writes what is wanted of a log to out, and calls flush when more may take a while.
func (r *Reader) Read(ctx context.Context, l Log, o Options, out io.Writer, flush func()) error {
	path := l.Path
	var c changes
	if o.Follow {
		var stop func()
		c, stop = r.watch(filepath.Dir(path)) // before the first look, so that nothing is missed
		defer stop()
	}
	f, err := open(path)
	if err != nil {
		return fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	p := &printer{Options: o, out: bufio.NewWriterSize(out, 32<<10), flush: flush, within: map[Stream]bool{}}
	err = r.read(ctx, path, l.ID, &f, p, c)
	if errors.Is(err, errEnough) {
		err = nil
	}
	if e := p.send(); err == nil {
		err = e
	}
	return err
}

func (r *Reader) read(ctx context.Context, path, id string, f **file, p *printer, c changes) error {
	older, at, size, err := begin(path, *f, p.Options)
	if err != nil {
		return err
	}
	for _, o := range older {
		if err := p.old(ctx, o); err != nil {
			return err
		}
	}
	if _, err := (*f).Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("failed to seek %d in log file %q: %w", at, path, err)
	}
	if !p.Follow {
		// What is written meanwhile is not waited for, or a talkative container would never end.
		(*f).lines.Reset(io.LimitReader((*f).File, size-at))
		_, err := p.all(ctx, *f, nil)
		return err
	}
	(*f).lines.Reset((*f).File)
	return r.follow(ctx, path, id, f, p, c)
}

// part is a rotated file of a log, of which some lines are not wanted.
type part struct {
	path string
	skip int64
}

// begin says where to begin: in which older files, and where in the newest.
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
			continue // it was rotated just now, or is of no interest
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

// follow prints what there is and what comes, until the container has ended and all is printed.
func (r *Reader) follow(ctx context.Context, path, id string, f **file, p *printer, c changes) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := r.ended(ctx, id)
	over := false
	var rest []byte
	for {
		var err error
		if rest, err = p.all(ctx, *f, rest); err != nil {
			return err
		}
		next, err := successor(path, *f)
		if err != nil {
			return err
		}
		if next != nil {
			// The runtime writes to the new file only when it has left the old one.
			if rest, err = p.all(ctx, *f, rest); err == nil {
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
			over = true // but there may be a last word
		case <-c.told:
		case <-c.tick:
		}
	}
}

func (r *Reader) ended(ctx context.Context, id string) <-chan struct{} {
	if r.Life == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	return r.Life.Ended(ctx, id)
}

// changes is when to look at a log again. One of its channels is nil.
type changes struct {
	told <-chan struct{}
	tick <-chan time.Time
}

// watch tells of changes in a folder.
func (r *Reader) watch(dir string) (changes, func()) {
	if r.Notify != nil {
		if told, stop, err := r.Notify.watch(dir); err == nil {
			return changes{told: told}, stop
		}
	}
	t := time.NewTicker(time.Second)
	return changes{tick: t.C}, t.Stop
}

// successor opens the file that has taken the place of f and is written to; nil when there is none.
func successor(path string, f *file) (*file, error) {
	now, err := os.Stat(path)
	if err != nil || now.Size() == 0 {
		return nil, nil //nolint:nilerr // it is being rotated, or everything is being removed
	}
	was, err := f.Stat()
	if err != nil || os.SameFile(now, was) {
		return nil, err
	}
	next, err := open(path)
	if gone(err) {
		return nil, nil // it was there a moment ago, and will be again
	}
	return next, err
}
