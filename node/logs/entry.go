package logs

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Stream is an output stream of a container.
type Stream string

// The streams of a container.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// stampLayout is the format of times: always with nine digits, so that columns are aligned.
const stampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// Entry is a line of a log file: a line that a container wrote, or a part of a long one.
type Entry struct {
	Time    time.Time
	Stream  Stream
	Partial bool   // the line continues in the next entry of its stream
	Text    []byte // without the newline
}

// Parse reads a line of the form
//
//	2016-10-06T00:17:09.669794202Z stdout F what the container wrote
//
// with or without the newline at its end. The text is a part of the line, not a copy.
func Parse(line []byte) (e Entry, err error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return e, errors.New("timestamp is not found")
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return e, fmt.Errorf("unexpected timestamp: %w", err)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return e, errors.New("stream type is not found")
	}
	if e.Stream = Stream(stream); e.Stream != Stdout && e.Stream != Stderr {
		return e, fmt.Errorf("unexpected stream type %q", stream)
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return e, errors.New("log tag is not found")
	}
	first, _, _ := bytes.Cut(tags, []byte{':'}) // more tags are reserved
	e.Partial, e.Text = string(first) == "P", text
	return e, nil
}

// endsLine reports whether an entry ends a line of the container. An invalid entry counts too, because it takes up a line
// of the file.
func endsLine(line []byte) bool {
	for range 2 {
		at := bytes.IndexByte(line, ' ')
		if at < 0 {
			return true
		}
		line = line[at+1:]
	}
	return len(line) == 0 || line[0] != 'P' || len(line) > 1 && line[1] != ' ' && line[1] != ':'
}
