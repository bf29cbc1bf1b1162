// Package chunkbuffer is a buffer for bytes that arrive in pieces and are read in order, such as the body of a request.
package chunkbuffer

import "sync"

// ChunkSize is the size of the largest chunks: that of the largest DATA frame which clients may send.
const ChunkSize = 16384

// chunkPool keeps chunks of ChunkSize for reuse.
var chunkPool sync.Pool // of *[ChunkSize]byte

// Buffer buffers the part of a body that has been received and not read, or of a header that is not complete yet. It
// grows chunk by chunk, and large chunks are reused once they are read: a single array that grows would leave behind
// garbage several times as large as the body. Small bodies lie in small chunks, so that many of them hold at most twice
// their bytes.
type Buffer struct {
	list [][]byte // only the last one has room left
	read int      // how much of the first one has been read
	Size int      // bytes that have not been read
}

// Add appends a copy of p.
func (q *Buffer) Add(p []byte) {
	for len(p) > 0 {
		last := len(q.list) - 1
		if last < 0 || len(q.list[last]) == cap(q.list[last]) {
			q.list = append(q.list, newChunk(max(len(p), q.Size)))
			last++
		}
		c := q.list[last]
		n := min(len(p), cap(c)-len(c))
		q.list[last] = append(c, p[:n]...)
		q.Size += n
		p = p[n:]
	}
}

// Next moves bytes into p, and returns how many.
func (q *Buffer) Next(p []byte) int {
	total := 0
	for len(p) > 0 && q.Size > 0 {
		n := copy(p, q.list[0][q.read:])
		p = p[n:]
		total += n
		q.Size -= n
		if q.read += n; q.read == len(q.list[0]) {
			freeChunk(q.list[0])
			q.list, q.read = q.list[1:], 0
		}
	}
	return total
}

// All returns all bytes in one piece, and empties the buffer. What lies in a single chunk is not copied.
func (q *Buffer) All() []byte {
	if len(q.list) == 1 {
		p := q.list[0][q.read:]
		*q = Buffer{}
		return p
	}
	p := make([]byte, q.Size)
	q.Next(p)
	*q = Buffer{}
	return p
}

// Capacity returns how many bytes of memory the chunks take.
func (q *Buffer) Capacity() int {
	n := 0
	for _, c := range q.list {
		n += cap(c)
	}
	return n
}

// Drop empties the buffer.
func (q *Buffer) Drop() {
	for _, c := range q.list {
		freeChunk(c)
	}
	*q = Buffer{}
}

func newChunk(want int) []byte {
	if want < ChunkSize {
		return make([]byte, 0, want)
	}
	if c, ok := chunkPool.Get().(*[ChunkSize]byte); ok {
		return c[:0]
	}
	return make([]byte, 0, ChunkSize)
}

func freeChunk(c []byte) {
	if cap(c) == ChunkSize {
		chunkPool.Put((*[ChunkSize]byte)(c[:ChunkSize]))
	}
}
