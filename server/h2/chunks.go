package h2

import "sync"

// chunkSize is the largest piece in which a body is kept. A frame of data is at most that large.
const chunkSize = smallestFrame

// chunkPool keeps chunks of chunkSize that were read, for the next bodies.
var chunkPool sync.Pool // of *[chunkSize]byte

// chunks is a part of a body that has been received and not been read, or of a header whose end has not been received. It grows chunk by chunk, and gives the large ones back for reuse as
// they are read: a single array that grows would leave behind garbage several times as large as the body. Small bodies lie in small chunks,
// so that many of them hold at most twice their bytes.
type chunks struct {
	list [][]byte // only the last one has room left
	read int      // how much of the first one has been read
	size int      // bytes that are left in all
}

// add appends a copy of p.
func (q *chunks) add(p []byte) {
	for len(p) > 0 {
		last := len(q.list) - 1
		if last < 0 || len(q.list[last]) == cap(q.list[last]) {
			q.list = append(q.list, newChunk(max(len(p), q.size)))
			last++
		}
		c := q.list[last]
		n := min(len(p), cap(c)-len(c))
		q.list[last] = append(c, p[:n]...)
		q.size += n
		p = p[n:]
	}
}

// next moves bytes into p, and returns how many.
func (q *chunks) next(p []byte) int {
	total := 0
	for len(p) > 0 && q.size > 0 {
		n := copy(p, q.list[0][q.read:])
		p = p[n:]
		total += n
		q.size -= n
		if q.read += n; q.read == len(q.list[0]) {
			freeChunk(q.list[0])
			q.list, q.read = q.list[1:], 0
		}
	}
	return total
}

// all takes everything, in one piece. What came in one piece is not copied.
func (q *chunks) all() []byte {
	if len(q.list) == 1 {
		p := q.list[0][q.read:]
		*q = chunks{}
		return p
	}
	p := make([]byte, q.size)
	q.next(p)
	*q = chunks{}
	return p
}

// capacity is how much memory the chunks take.
func (q *chunks) capacity() int {
	n := 0
	for _, c := range q.list {
		n += cap(c)
	}
	return n
}

// drop forgets everything.
func (q *chunks) drop() {
	for _, c := range q.list {
		freeChunk(c)
	}
	*q = chunks{}
}

func newChunk(want int) []byte {
	if want < chunkSize {
		return make([]byte, 0, want)
	}
	if c, ok := chunkPool.Get().(*[chunkSize]byte); ok {
		return c[:0]
	}
	return make([]byte, 0, chunkSize)
}

func freeChunk(c []byte) {
	if cap(c) == chunkSize {
		chunkPool.Put((*[chunkSize]byte)(c[:chunkSize]))
	}
}
