package ipam

import "testing"

// FuzzRanges checks that the networks of a range are inside it, have the wanted length, and do not overlap.
func FuzzRanges(f *testing.F) {
	f.Add("10.244.0.0/16", "fd00::/48", 24, 64)
	f.Add("::ffff:10.0.0.0/112", "0.0.0.0/0", 0, 0)
	f.Fuzz(func(t *testing.T, one, other string, mask4, mask6 int) {
		ranges, err := Parse([]string{one, other}, mask4, mask6)
		if err != nil {
			return
		}
		for _, r := range ranges {
			first, last := r.block(0), r.block(r.size()-1)
			if !r.contains(first) || !r.contains(last) || first.Bits() != r.NodeMask || r.size() > 1 && first.Overlaps(last) {
				t.Errorf("%+v: %v … %v", r, first, last)
			}
		}
	})
}
