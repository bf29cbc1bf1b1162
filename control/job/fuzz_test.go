package job

import "testing"

// FuzzIndexes checks that parsed indexes are sorted, do not overlap, are below the completions, and are formatted as parsed.
func FuzzIndexes(f *testing.F) {
	f.Add("1,3-5,7", 10)
	f.Add("5-3,0-,x,4-99999999999", 6)
	f.Fuzz(func(t *testing.T, text string, completions int) {
		x := parseIndexes(text, completions)
		for i, s := range x {
			if s.first < 0 || s.last < s.first || s.last >= completions || i > 0 && s.first <= x[i-1].last+1 {
				t.Fatalf("%q of %d is read as %v", text, completions, x)
			}
			if !x.has(s.first) || !x.has(s.last) || x.has(s.last+1) {
				t.Errorf("%v does not know its own %v", x, s)
			}
		}
		if again := parseIndexes(x.String(), completions); again.String() != x.String() || again.count() != x.count() {
			t.Errorf("%v is written and read as %v", x, again)
		}
	})
}
