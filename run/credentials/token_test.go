package credentials

import "testing"

// FuzzJoinToken checks that a token is parsed only in the form in which it is written.
func FuzzJoinToken(f *testing.F) {
	f.Add("abcdef.0123456789abcdef.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	f.Add("abcdef.0123456789abcdef")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseJoinToken(text)
		if err == nil && token.String() != text {
			t.Errorf("%q is read as %q", text, token)
		}
	})
}
