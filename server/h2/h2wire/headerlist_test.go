package h2wire

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// TestNamesAreBounded checks that the cache of field names of a connection is limited.
func TestNamesAreBounded(t *testing.T) {
	cache := NameCache{}
	for i := range 2 * maxCachedNames {
		NewHeaderList(1<<20).Add(hpack.HeaderField{Name: strings.Repeat("x", 20_000) + strconv.Itoa(i), Value: "x"}, cache)
	}
	size := 0
	for name, canonical := range cache {
		size += len(name) + len(canonical)
	}
	if size > 1<<20 {
		t.Errorf("a client makes its connection remember %d bytes", size)
	}
}
