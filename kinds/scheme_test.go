package kinds

import "testing"

// TestSchemeKnowsEveryKind checks that the scheme has every served kind, with the Go type of its descriptor.
func TestSchemeKnowsEveryKind(t *testing.T) {
	s, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range All() {
		obj, err := s.New(d.GroupVersionKind)
		if err != nil {
			t.Errorf("%s: %v", d.GroupVersionKind, err)
			continue
		}
		gvks, _, err := s.ObjectKinds(d.New())
		if err != nil || gvks[0] != d.GroupVersionKind {
			t.Errorf("%s: the descriptor's type is registered as %v (%v), want %T", d.GroupVersionKind, gvks, err, obj)
		}
	}
}
