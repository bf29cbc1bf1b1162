package encode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/kinds/kind"
)

// TestCachedEncodingsAreOfOneObjectState checks that a cached encoding is used only for the same state of an object in the
// same version.
func TestCachedEncodingsAreOfOneObjectState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewCache(1 << 20)
		v1, v2 := &kind.Def{}, &kind.Def{}
		before, is := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		e.put(v1, "a", before, []byte("was"))
		for _, test := range []struct {
			name  string
			def   *kind.Def
			key   string
			o     *unstructured.Unstructured
			found bool
		}{
			{"the same", v1, "a", before, true},
			{"another version", v2, "a", before, false},
			{"another object", v1, "b", before, false},
			{"the object after a change", v1, "a", is, false},
		} {
			if text, found := e.get(test.def, test.key, test.o); found != test.found || found && string(text) != "was" {
				t.Errorf("%s: %q, %v", test.name, text, found)
			}
		}
		e.put(v1, "a", is, []byte("is"))
		if text, _ := e.get(v1, "a", is); string(text) != "is" {
			t.Errorf("got %q", text)
		}
		runtime.KeepAlive(before)
		time.Sleep(3 * generation)
		synctest.Wait()
		if e.young != nil || e.old != nil || e.aging != nil {
			t.Error("encodings are cached that were not requested")
		}
	})
}

// TestCachedEncodingsAreBounded checks that the cache stays within its limit, and that entries in use are kept.
func TestCachedEncodingsAreBounded(t *testing.T) {
	const limit = 100 << 10
	e := NewCache(limit)
	def, often := &kind.Def{}, &unstructured.Unstructured{}
	text := []byte(strings.Repeat("x", 1000))
	e.put(def, "often", often, text)
	for i := range 10000 {
		e.put(def, fmt.Sprint(i), often, text)
		if _, found := e.get(def, "often", often); !found {
			t.Fatalf("an entry in use was evicted after %d others", i)
		}
		if held := 1000 * (len(e.young) + len(e.old)); held > 2*limit {
			t.Fatalf("%d bytes are held", held)
		}
	}
	e.put(def, "large", often, make([]byte, limit/4))
	if _, found := e.get(def, "large", often); found {
		t.Error("a large encoding is kept")
	}
}
