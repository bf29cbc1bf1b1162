package state

import (
	"log/slog"
	"testing"

	"proa.dev/kinds"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	memorystore "proa.dev/store/memory"
)

// TestOccupied checks that a resource counts as unoccupied only while none of its objects is stored or about to be written,
// and that its first write is signalled once.
func TestOccupied(t *testing.T) {
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	newState := func(def *kind.Def, custom, soleWriter bool, write bool) *State {
		store := memorystore.New(memorystore.Config{})
		if custom {
			def.Load = func([]byte) (kind.Object, error) { return nil, nil }
		}
		if write {
			if _, err := store.Commit(t.Context(), kv.Write{Key: def.Key("ns", "a"), Value: []byte("a")}); err != nil {
				t.Fatal(err)
			}
		}
		s := New(t.Context(), codec.New(scheme), store, []*kind.Def{def}, slog.New(slog.DiscardHandler))
		t.Cleanup(s.Close)
		s.SoleWriter = soleWriter
		return s
	}
	for _, c := range []struct {
		what                                     string
		custom, soleWriter, stored, aboutToWrite bool
		want                                     bool
	}{
		{"a custom resource without objects", true, true, false, false, false},
		{"a custom resource with an object", true, true, true, false, true},
		{"a custom resource with a first write that has begun", true, true, false, true, true},
		{"a custom resource in a store of several servers", true, false, false, false, true},
		{"a built-in resource", false, true, false, false, true},
	} {
		def := core.ConfigMaps()
		s := newState(def, c.custom, c.soleWriter, c.stored)
		for range 2 { // the second result is remembered
			if got := s.Occupied(def.Resource()); got != (c.want && !c.aboutToWrite) {
				t.Errorf("%s: occupied is %t", c.what, got)
			}
		}
		wantSignals := 0
		if c.aboutToWrite {
			s.MarkOccupied(def)
			s.MarkOccupied(def)
			wantSignals = 1
		}
		if n := len(s.NewlyOccupied()); n != wantSignals {
			t.Errorf("%s: signalled %d times", c.what, n)
		}
		if got := s.Occupied(def.Resource()); got != c.want {
			t.Errorf("%s: occupied is %t in the end", c.what, got)
		}
	}
}
