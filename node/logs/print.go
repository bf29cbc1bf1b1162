package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// errEnough says that as much was written as was wanted.
var errEnough = errors.New("the limit of bytes is reached")

// printer writes entries as people read them.
type printer struct {
	Options
	out     *bufio.Writer
	flush   func()
	written int64
	within  map[Stream]bool // the last entry of a stream was not the end of its line
	stamp   []byte
}

// all prints a file to its end. It returns the beginning of a line that is not ended yet, and takes what was before it.
func (p *printer) all(ctx context.Context, f *file, rest []byte) ([]byte, error) {
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

// old prints a rotated file, unless it has gone meanwhile.
func (p *printer) old(ctx context.Context, o part) error {
	f, err := open(o.path)
	if gone(err) {
		f, err = open(o.path + zipped) // it was compressed just now
	}
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.skip(o.skip); err != nil {
		return nil // it has become shorter
	}
	rest, err := p.all(ctx, f, nil)
	if err != nil {
		return err
	}
	return p.print(rest)
}

// print writes an entry, if it is wanted. What is no entry is left out.
func (p *printer) print(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	e, err := Parse(line)
	if err != nil || e.Time.Before(p.Since) || p.Stream != "" && p.Stream != e.Stream {
		return nil //nolint:nilerr // a line that a crash has cut
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
		return errEnough
	}
	n, err := p.out.Write(b)
	p.written += int64(n)
	return err
}

// send gives the reader what was printed so far.
func (p *printer) send() error {
	if p.out.Buffered() == 0 {
		return nil
	}
	return p.done()
}

func (p *printer) done() error {
	if err := p.out.Flush(); err != nil {
		return err
	}
	if p.flush != nil {
		p.flush()
	}
	return nil
}
