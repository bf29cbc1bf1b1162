package h2

import (
	"bytes"
	"runtime"
	"testing"
)

// TestChunks adds and reads pieces of all sizes, and compares with a plain buffer.
func TestChunks(t *testing.T) {
	t.Parallel()
	var q chunks
	var plain bytes.Buffer
	text := pattern(3 * chunkSize)
	for i, size := range []int{1, 1, 1, 100, 0, chunkSize, 5, chunkSize - 1, 3 * chunkSize, 7, 1000, chunkSize} {
		q.add(text[:size])
		plain.Write(text[:size])
		got, want := make([]byte, 3001*(i%4)), make([]byte, 3001*(i%4))
		n := q.next(got)
		m, _ := plain.Read(want)
		if n != m || !bytes.Equal(got, want) || q.size != plain.Len() {
			t.Fatalf("step %d: read %d and left %d bytes, want %d and %d, or the bytes differ", i, n, q.size, m, plain.Len())
		}
	}
	if got := q.all(); !bytes.Equal(got, plain.Bytes()) || q.size != 0 || q.list != nil {
		t.Errorf("got %d bytes at the end, want %d", len(got), plain.Len())
	}
	q.add(text)
	if q.drop(); q.size != 0 || q.next(make([]byte, 1)) != 0 {
		t.Error("something is left of what was dropped")
	}
}

// TestChunksOfSmallBodiesAreSmall holds that a body which comes byte by byte holds at most twice what it has, and that one which came in one
// piece is not copied.
func TestChunksOfSmallBodiesAreSmall(t *testing.T) {
	t.Parallel()
	var q chunks
	for range 3000 {
		q.add([]byte{'x'})
		if held := q.capacity(); held > 2*q.size {
			t.Fatalf("%d bytes hold %d", q.size, held)
		}
	}
	q.drop()
	q.add(pattern(1000))
	first := &q.list[0][0]
	if got := q.all(); &got[0] != first || cap(got) != 1000 {
		t.Errorf("a body of one piece was copied, or holds %d bytes", cap(got))
	}
}

// TestLargeBodyLeavesNoGarbage holds that what is allocated for a large body, read as fast as it comes, is a small part of it. A single array
// that grows while its beginning is read takes more than the body.
func TestLargeBodyLeavesNoGarbage(t *testing.T) { // not parallel: it counts
	const rounds = 200
	piece, into := pattern(chunkSize), make([]byte, chunkSize)
	var before, after runtime.MemStats
	var q chunks
	runtime.ReadMemStats(&before)
	for range rounds {
		for range 4 {
			q.add(piece)
		}
		for q.size > chunkSize {
			q.next(into)
		}
	}
	runtime.ReadMemStats(&after)
	const body = 4 * rounds * chunkSize
	if got := after.TotalAlloc - before.TotalAlloc; got > body/2 {
		t.Errorf("a body of %d bytes took %d bytes of memory", body, got)
	}
}

// TestUnendedHeaderLeavesNoGarbage holds that a header that grows frame by frame and does not end takes little more memory than it has bytes.
func TestUnendedHeaderLeavesNoGarbage(t *testing.T) { // not parallel: it counts
	const frames = 60
	piece := pattern(chunkSize)
	var before, after runtime.MemStats
	var q chunks
	runtime.ReadMemStats(&before)
	for range frames {
		q.add(piece)
	}
	runtime.ReadMemStats(&after)
	const size = frames * chunkSize
	if got := after.TotalAlloc - before.TotalAlloc; got > size*5/4 || q.capacity() != size {
		t.Errorf("%d bytes took %d bytes of memory, and hold %d", size, got, q.capacity())
	}
}
