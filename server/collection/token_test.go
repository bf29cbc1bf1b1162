package collection

import (
	"strings"
	"testing"
)

func FuzzContinueToken(f *testing.F) {
	f.Add(token{Rev: 7, Start: "ns/a\x00"}.encode())
	f.Add("e30")
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi94In0")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := decodeToken(s)
		if err != nil {
			return
		}
		if strings.Contains("/"+tok.Start+"/", "/../") {
			t.Errorf("a token climbs: %q", tok.Start)
		}
		again, err := decodeToken(token{Rev: tok.Rev, Start: tok.Start}.encode())
		if err != nil || again.Start != tok.Start || again.Rev != tok.Rev {
			t.Errorf("%+v does not survive: %+v, %v", tok, again, err)
		}
	})
}
