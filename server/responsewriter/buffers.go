package responsewriter

import (
	"bytes"
	"sync"
)

// PieceSize is how many bytes of an answer are encoded before they are sent. A longer answer is sent in pieces; a
// shorter one is encoded as a whole, so that its length is known. It is also the size from which an answer is
// compressed.
const PieceSize = 128 << 10

// buffers are reused between answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// GetBuffer returns an empty buffer, which the caller gives back with PutBuffer.
func GetBuffer() *bytes.Buffer {
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	return buf
}

// PutBuffer gives a buffer back. One that has grown large is left to the garbage collector.
func PutBuffer(buf *bytes.Buffer) {
	if buf.Cap() < 1<<20 {
		buffers.Put(buf)
	}
}

// MinRequestMemory is how many bytes a request in flight takes at least: its goroutine, its fields and those of its
// answer.
const MinRequestMemory = 8 << 10
