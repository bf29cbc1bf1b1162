package chunkbuffer

import (
	"bytes"
	"runtime"
	"testing"
)

// TestChunks adds and reads pieces of all sizes, and compares with a plain buffer.
func TestChunks(t *testing.T) {
	t.Parallel()
	var q Buffer
	var plain bytes.Buffer
	text := pattern(3 * ChunkSize)
	for i, size := range []int{1, 1, 1, 100, 0, ChunkSize, 5, ChunkSize - 1, 3 * ChunkSize, 7, 1000, ChunkSize} {
		q.Add(text[:size])
		plain.Write(text[:size])
		got, want := make([]byte, 3001*(i%4)), make([]byte, 3001*(i%4))
		n := q.Next(got)
		m, _ := plain.Read(want)
		if n != m || !bytes.Equal(got, want) || q.Size != plain.Len() {
			t.Fatalf("step %d: read %d and left %d bytes, want %d and %d, or the bytes differ", i, n, q.Size, m, plain.Len())
		}
	}
	if got := q.All(); !bytes.Equal(got, plain.Bytes()) || q.Size != 0 || q.list != nil {
		t.Errorf("got %d bytes at the end, want %d", len(got), plain.Len())
	}
	q.Add(text)
	if q.Drop(); q.Size != 0 || q.Next(make([]byte, 1)) != 0 {
		t.Error("something is left of what was dropped")
	}
}

// TestChunksOfSmallBodiesAreSmall checks that a body which arrives byte by byte holds at most twice its size, and that
// one which arrived in one piece is not copied.
func TestChunksOfSmallBodiesAreSmall(t *testing.T) {
	t.Parallel()
	var q Buffer
	for range 3000 {
		q.Add([]byte{'x'})
		if held := q.Capacity(); held > 2*q.Size {
			t.Fatalf("%d bytes hold %d", q.Size, held)
		}
	}
	q.Drop()
	q.Add(pattern(1000))
	first := &q.list[0][0]
	if got := q.All(); &got[0] != first || cap(got) != 1000 {
		t.Errorf("a body of one piece was copied, or holds %d bytes", cap(got))
	}
}

// TestLargeBodyLeavesNoGarbage checks that the memory allocated for a large body that is read as fast as it arrives is
// a small part of it. A single array that grows while its beginning is read would take more than the body.
func TestLargeBodyLeavesNoGarbage(t *testing.T) { // not parallel, because it measures memory
	const rounds = 200
	piece, into := pattern(ChunkSize), make([]byte, ChunkSize)
	var before, after runtime.MemStats
	var q Buffer
	runtime.ReadMemStats(&before)
	for range rounds {
		for range 4 {
			q.Add(piece)
		}
		for q.Size > ChunkSize {
			q.Next(into)
		}
	}
	runtime.ReadMemStats(&after)
	const body = 4 * rounds * ChunkSize
	if got := after.TotalAlloc - before.TotalAlloc; got > body/2 {
		t.Errorf("a body of %d bytes took %d bytes of memory", body, got)
	}
}

// TestUnendedHeaderLeavesNoGarbage checks that a header that grows frame by frame and does not end takes little more
// memory than it has bytes.
func TestUnendedHeaderLeavesNoGarbage(t *testing.T) { // not parallel, because it measures memory
	const frames = 60
	piece := pattern(ChunkSize)
	var before, after runtime.MemStats
	var q Buffer
	runtime.ReadMemStats(&before)
	for range frames {
		q.Add(piece)
	}
	runtime.ReadMemStats(&after)
	const size = frames * ChunkSize
	if got := after.TotalAlloc - before.TotalAlloc; got > size*5/4 || q.Capacity() != size {
		t.Errorf("%d bytes took %d bytes of memory, and hold %d", size, got, q.Capacity())
	}
}

// pattern returns n bytes, each of them different from the bytes next to it.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i % 251)
	}
	return p
}
