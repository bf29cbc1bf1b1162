package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// errLimit says that the limit of bytes is reached.
var errLimit = errors.New("the limit of bytes is reached")

// printer writes entries in the format of kubectl logs.
type printer struct {
	Options
	out     *bufio.Writer
	flush   func()
	written int64
	within  map[Stream]bool // the last entry of a stream was partial
	stamp   []byte
}

// printFile prints a file to its end. rest is the beginning of the first line; the beginning of an unfinished last line is
// returned.
func (p *printer) printFile(ctx context.Context, f *file, rest []byte) ([]byte, error) {
	for ctx.Err() == nil {
		line, err := f.next(rest)
		switch {
		case errors.Is(err, io.EOF) && p.Follow:
			return line, nil
		case errors.Is(err, io.EOF):
			return nil, p.print(line)
		case err != nil:
			return nil, fmt.Errorf("failed to read log file %q: %w", f.Name(), err)
		}
		if err := p.print(line); err != nil {
			return nil, err
		}
		rest = line[:0]
	}
	return nil, ctx.Err()
}

// printRotated prints a rotated file, unless it has been removed meanwhile.
func (p *printer) printRotated(ctx context.Context, o part) error {
	f, err := open(o.path)
	if isNotExist(err) {
		f, err = open(o.path + gzipSuffix) // it has just been compressed
	}
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.skip(o.skip); err != nil {
		return nil // it has become shorter
	}
	rest, err := p.printFile(ctx, f, nil)
	if err != nil {
		return err
	}
	return p.print(rest)
}

// print writes an entry, if it is wanted. Invalid entries are left out.
func (p *printer) print(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	e, err := Parse(line)
	if err != nil || e.Time.Before(p.Since) || p.Stream != "" && p.Stream != e.Stream {
		return nil //nolint:nilerr // invalid entries, such as lines cut by a crash, are left out
	}
	if p.Timestamps && !p.within[e.Stream] {
		p.stamp = append(e.Time.AppendFormat(p.stamp[:0], stampLayout), ' ')
		if err := p.write(p.stamp); err != nil {
			return err
		}
	}
	p.within[e.Stream] = e.Partial
	if err := p.write(e.Text); err != nil || e.Partial {
		return err
	}
	return p.write([]byte{'\n'})
}

func (p *printer) write(b []byte) error {
	if p.Limit > 0 && p.written+int64(len(b)) >= p.Limit {
		if _, err := p.out.Write(b[:p.Limit-p.written]); err != nil {
			return err
		}
		p.written = p.Limit
		return errLimit
	}
	n, err := p.out.Write(b)
	p.written += int64(n)
	return err
}

// send flushes what was printed so far.
func (p *printer) send() error {
	if p.out.Buffered() == 0 {
		return nil
	}
	return p.flushAll()
}

func (p *printer) flushAll() error {
	if err := p.out.Flush(); err != nil {
		return err
	}
	if p.flush != nil {
		p.flush()
	}
	return nil
}
