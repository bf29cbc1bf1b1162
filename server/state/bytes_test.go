package state

import "testing"

// TestBytesOfWritesInProgressCount reserves the bytes of writes that are made at the same time.
func TestBytesOfWritesInProgressCount(t *testing.T) {
	t.Parallel()
	s := &State{}
	s.bytes.add("ns", 50) // what a cache has
	for i, want := range []bool{true, true, false} {
		if used, fits := s.ReserveBytes("ns", 20, 100); fits != want || used != int64(50+20*i) {
			t.Errorf("write %d: fits %t with %d used", i, fits, used)
		}
	}
	if _, fits := s.ReserveBytes("other", 100, 100); !fits {
		t.Error("another namespace is full, too")
	}
	s.bytes.add("ns", 20) // the cache shows the first write
	s.ReleaseBytes("ns", 20)
	s.ReleaseBytes("ns", 20) // the second has failed
	if used, _ := s.ReserveBytes("ns", 1000, 100); used != 70 {
		t.Errorf("%d bytes are used", used)
	}
}
