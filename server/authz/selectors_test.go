package authz

import "testing"

// FuzzSelectors checks that an invalid selector is ignored as a whole, so that the request is authorized without it.
func FuzzSelectors(f *testing.F) {
	f.Add("spec.nodeName=x,metadata.name!=y", "a in (c,b),!d")
	f.Add("a=b=c,,", "a in (")
	f.Add("=", "!")
	f.Fuzz(func(t *testing.T, field, label string) {
		var a Attributes
		a.ParseSelectors(field, label)
		if a.FieldSelectorError != nil && len(a.FieldSelector) > 0 || a.LabelSelectorError != nil && len(a.LabelSelector) > 0 {
			t.Errorf("%q, %q: %+v", field, label, a)
		}
	})
}
