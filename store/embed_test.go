package store

import (
	"context"
	"testing"
	"time"

	"proa.dev/kv"
)

func embed(t testing.TB, dir string) *Etcd {
	t.Helper()
	e, err := Embed(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestEmbedStart(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		start := time.Now()
		e, err := Embed(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("start %d took %v", i, time.Since(start))
		rev, err := e.Commit(context.Background(), kv.Write{Key: "/a/" + string(rune('a'+i)), Value: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		p, ok, err := e.Get(t.Context(), "/a/a")
		t.Log(rev, p, ok, err)
		start = time.Now()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("stop %d took %v", i, time.Since(start))
	}
}

func BenchmarkCommit(b *testing.B) {
	e := embed(b, b.TempDir())
	val := make([]byte, 1024)
	b.ReportAllocs()
	var rev int64
	for b.Loop() {
		var err error
		rev, err = e.Commit(b.Context(), kv.Write{Key: "/registry/pods/default/a", Value: val, Rev: rev})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	e := embed(b, b.TempDir())
	if _, err := e.Commit(b.Context(), kv.Write{Key: "/registry/pods/default/a", Value: make([]byte, 1024)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := e.Get(b.Context(), "/registry/pods/default/a"); err != nil {
			b.Fatal(err)
		}
	}
}
