package logs

import (
	"bytes"
	"errors"
	"io"
)

// tailBlock is how much is read at a time from the end of a file.
const tailBlock = 64 << 10

// tail finds where the last n lines of a file of the given size begin. It also returns how many there are, which is
// less than n if the file is shorter. An unfinished last line is included but not counted.
func tail(f io.ReaderAt, size, n int64) (at, lines int64, err error) {
	end := size
	if n <= 0 {
		return size, 0, nil
	}
	var held []byte // the beginning of what was read last: a line whose start has not been read yet
	block := make([]byte, tailBlock)
	first := true // what follows the last newline is an unfinished line
	for end > 0 {
		length := min(end, tailBlock)
		end -= length
		if _, err := f.ReadAt(block[:length], end); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		held = append(bytes.Clone(block[:length]), held...)
		for {
			i := bytes.LastIndexByte(held, '\n')
			if i < 0 {
				break
			}
			line := held[i+1:]
			held = held[:i]
			if first {
				first = false
				continue
			}
			if endsLine(line) {
				if lines == n { // this is the line before the first wanted one
					return end + int64(i) + 1 + int64(len(line)) + 1, lines, nil
				}
				lines++
			}
		}
		if len(held) > maxLine {
			held = held[:maxLine]
		}
	}
	if !first && len(held) > 0 && endsLine(held) {
		if lines == n {
			return int64(len(held)) + 1, lines, nil
		}
		lines++
	}
	return 0, lines, nil
}
