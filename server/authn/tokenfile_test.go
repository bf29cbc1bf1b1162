package authn

import (
	"strings"
	"testing"
)

// FuzzTokenFile checks that every token of an accepted list has an owner, and the empty one has none.
func FuzzTokenFile(f *testing.F) {
	f.Add("secret,alice,1\n")
	f.Add("secret,alice,1,\"a,b\"\nother,bob,2\n")
	f.Add("\"\n,,")
	f.Fuzz(func(t *testing.T, text string) {
		ask, err := TokenFile(strings.NewReader(text))
		if err != nil {
			return
		}
		if who, _, ok, _ := ask(t.Context(), "", nil); ok {
			t.Errorf("nobody's token is that of %v", who)
		}
	})
}
