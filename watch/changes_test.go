package watch_test

import (
	"testing"

	"proa.dev/kv"
	"proa.dev/watch"
)

// TestChangesCountUnreadableObjects checks that Changes differs after an object has become unreadable, and after it was deleted, also if
// it was never readable.
func TestChangesCountUnreadableObjects(t *testing.T) {
	w := newCacheTest(t)
	rev := w.put("a", 0)
	c := w.cache()
	for _, step := range []struct {
		title, name string
		value       []byte
	}{
		{"a readable object becomes unreadable", "a", []byte("damaged")},
		{"an unreadable object is created", "b", []byte("damaged")},
		{"it is deleted", "b", nil},
	} {
		if step.value != nil && step.name == "b" {
			rev = 0
		}
		before := changesAfter(t, c)
		var err error
		rev, err = w.store.Commit(t.Context(), kv.Write{Key: w.def.Key("ns", step.name), Value: step.value, Rev: rev})
		if err != nil {
			t.Fatal(err)
		}
		if changesAfter(t, c) == before {
			t.Errorf("not counted: %s", step.title)
		}
	}
}

// changesAfter returns the number of changes of a cache that has reached every write.
func changesAfter(t *testing.T, c *watch.Cache) int64 {
	t.Helper()
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c.Changes()
}
