package openapi

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// incompressible returns content that does not compress.
func incompressible(n int) func(io.Writer) error {
	return func(w io.Writer) error {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rand.IntN(256))
		}
		_, err := w.Write(b)
		return err
	}
}

func TestDocumentCacheIsBounded(t *testing.T) {
	k := documentCache{limit: 10_000, docs: map[string]*doc{}}
	for i := range 20 {
		if _, err := k.get(fmt.Sprint(i), "tag", incompressible(1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := k.get("0", "tag", incompressible(1000)); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for _, d := range k.docs {
		total += d.size
	}
	if total > k.limit || len(k.docs) < 5 {
		t.Errorf("%d bytes in %d documents are kept", total, len(k.docs))
	}
	if k.docs["0"] == nil || k.docs["19"] == nil || k.docs["1"] != nil {
		t.Error("what was used last does not stay, or what was used first does")
	}
	if _, err := k.get("large", "tag", incompressible(50_000)); err != nil || len(k.docs) != 1 {
		t.Errorf("%d documents are kept beside one over the limit (%v)", len(k.docs)-1, err)
	}
}

func TestDocumentCacheRetriesAfterError(t *testing.T) {
	k := documentCache{limit: 10_000, docs: map[string]*doc{}}
	if _, err := k.get("a", "tag", func(io.Writer) error { return errors.New("not now") }); err == nil {
		t.Error("the error is lost")
	}
	if p, err := k.get("a", "tag", incompressible(10)); err != nil || p.size != 10 {
		t.Errorf("%d bytes, %v", p.size, err)
	}
}
