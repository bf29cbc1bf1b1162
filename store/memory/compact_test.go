package memory

import (
	"errors"
	"fmt"
	"testing"

	"proa.dev/kv"
)

// TestCompactionFrees checks that compaction frees the memory of deleted keys.
func TestCompactionFrees(t *testing.T) {
	s := open(t)
	kept := commit(t, s, kv.Write{Key: "/kept", Value: []byte("12345")})
	for i := range 100 {
		k := fmt.Sprint("/gone/", i)
		rev := commit(t, s, kv.Write{Key: k, Value: []byte("1")})
		rev = commit(t, s, kv.Write{Key: k, Value: []byte("2"), Rev: rev})
		commit(t, s, kv.Write{Key: k, Rev: rev})
		kept = commit(t, s, kv.Write{Key: "/kept", Value: []byte("12345"), Rev: kept})
	}
	for _, rev := range []int64{50, 51, 52, 200, kept} {
		if err := s.Compact(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		if len(s.log) != int(kept-rev+1) || s.log[0].Rev != rev {
			t.Errorf("compacted at %d the log has %d changes from %d on", rev, len(s.log), s.log[0].Rev)
		}
	}
	size, err := s.Size(t.Context())
	if err != nil || size != int64(len("/kept")+5) {
		t.Errorf("the size is %d, %v", size, err)
	}
	if i := s.item("/kept"); s.keys.Len() != 1 || len(i.versions) != 1 {
		t.Errorf("%d keys, %+v", s.keys.Len(), i)
	}
	// The previous pair of the change at the compacted revision is removed, too.
	for _, key := range []string{"/other", "/kept"} {
		kept = commit(t, s, kv.Write{Key: key, Value: []byte("1"), Rev: s.item(key).now().Rev})
		if err := s.Compact(t.Context(), kept); err != nil {
			t.Fatal(err)
		}
	}
	if i := s.item("/kept"); len(i.versions) != 1 {
		t.Errorf("%+v", i)
	}
	if err := s.Compact(t.Context(), kept+1); !errors.Is(err, kv.ErrFuture) {
		t.Errorf("compaction of the future: %v", err)
	}
}

// TestCompactionOvertakesReader checks that a watch with queued changes that are compacted ends, and that others
// continue.
func TestCompactionOvertakesReader(t *testing.T) {
	s := open(t)
	x1 := commit(t, s, kv.Write{Key: "/a/x", Value: []byte("1")})
	var x2, y1 int64
	step := 0
	for b, err := range s.Watch(t.Context(), "/a/", x1-1) {
		switch step++; step {
		case 1:
			x2 = commit(t, s, kv.Write{Key: "/a/x", Value: []byte("2"), Rev: x1})
		case 2:
			// Delivered changes and those with other prefixes may be compacted.
			y1 = commit(t, s, kv.Write{Key: "/b/y", Value: []byte("1")})
			y1 = commit(t, s, kv.Write{Key: "/b/y", Value: []byte("1"), Rev: y1})
			if err := s.Compact(t.Context(), y1); err != nil {
				t.Fatal(err)
			}
			x2 = commit(t, s, kv.Write{Key: "/a/x", Value: []byte("3"), Rev: x2})
		case 3:
			if err != nil || len(b.Changes) != 1 || b.Changes[0].Rev != x2 || string(b.Changes[0].Prev.Value) != "2" {
				t.Fatalf("got %+v, %v", b, err)
			}
			x2 = commit(t, s, kv.Write{Key: "/a/x", Value: []byte("4"), Rev: x2})
			if err := s.Compact(t.Context(), x2); err != nil {
				t.Fatal(err)
			}
		case 4:
			if !errors.Is(err, kv.ErrCompacted) {
				t.Fatalf("got %+v, %v", b, err)
			}
		}
	}
	if step != 4 {
		t.Errorf("%d batches", step)
	}
}
