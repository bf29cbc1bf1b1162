package logs

import (
	"bytes"
	"errors"
	"io"
)

// tailBlock is how much is read at a time from the end of a file.
const tailBlock = 64 << 10

// tail finds where the last n lines of a file begin that is size long. It also says how many there are, which is less than n
// when the file is shorter. A last line that is not ended yet does not count, and belongs to what is found.
func tail(f io.ReaderAt, size, n int64) (at, lines int64, err error) {
	end := size
	if n <= 0 {
		return size, 0, nil
	}
	var held []byte // the beginning of what was read last: a line whose start is not seen yet
	block := make([]byte, tailBlock)
	first := true // nothing before the first newline from the end is a whole line
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
			if whole(line) {
				if lines == n { // this is the line before the first that is wanted
					return end + int64(i) + 1 + int64(len(line)) + 1, lines, nil
				}
				lines++
			}
		}
		if len(held) > maxLine {
			held = held[:maxLine]
		}
	}
	if !first && len(held) > 0 && whole(held) {
		if lines == n {
			return int64(len(held)) + 1, lines, nil
		}
		lines++
	}
	return 0, lines, nil
}
