package seal_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"proa.dev/kv"
	"proa.dev/store"
	"proa.dev/store/seal"
	"proa.dev/store/storetest"
)

func key(name string, b byte) seal.Key {
	return seal.Key{Name: name, Secret: bytes.Repeat([]byte{b}, 32)}
}

func embed(t *testing.T) *store.Etcd {
	t.Helper()
	s, err := store.Embed(t.Context(), store.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// whole is a sealed store with what the suite needs of an etcd besides.
type whole struct {
	*seal.Sealed
	inner *store.Etcd
}

func (w whole) Compact(ctx context.Context, rev int64) error { return w.inner.Compact(ctx, rev) }

// A sealed store keeps every promise of a store.
func TestSealedIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		inner := embed(t)
		s, err := seal.New(inner, []string{"/"}, key("k", 1))
		if err != nil {
			t.Fatal(err)
		}
		return whole{s, inner}
	})
}

func TestOnlyChosenKeysAreSealed(t *testing.T) {
	inner := embed(t)
	s, err := seal.New(inner, []string{"/registry/secrets/"}, key("one", 1))
	if err != nil {
		t.Fatal(err)
	}
	const text = "the password is swordfish"
	for _, k := range []string{"/registry/secrets/a/b", "/registry/configmaps/a/b"} {
		if _, err := s.Commit(t.Context(), kv.Write{Key: k, Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if p, _, err := s.Get(t.Context(), k); err != nil || string(p.Value) != text {
			t.Errorf("%s reads %q, %v", k, p.Value, err)
		}
	}
	raw, _, err := inner.Get(t.Context(), "/registry/secrets/a/b")
	if err != nil || bytes.Contains(raw.Value, []byte("swordfish")) || !bytes.HasPrefix(raw.Value, []byte("k8s:enc:aesgcm:v1:one:")) {
		t.Errorf("stored as %q, %v", raw.Value, err)
	}
	if raw, _, err = inner.Get(t.Context(), "/registry/configmaps/a/b"); err != nil || string(raw.Value) != text {
		t.Errorf("stored as %q, %v", raw.Value, err)
	}
	// A conflict shows the present value in the clear.
	_, err = s.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a/b", Value: []byte("x")})
	if c, lost := errors.AsType[*kv.Conflict](err); !lost || string(c.Now.Value) != text {
		t.Errorf("conflict %v", err)
	}
}

func TestKeysAndForgeries(t *testing.T) {
	inner := embed(t)
	prefixes := []string{"/registry/secrets/"}
	old, err := seal.New(inner, prefixes, key("old", 1))
	if err != nil {
		t.Fatal(err)
	}
	const k = "/registry/secrets/a/b"
	if _, err := old.Commit(t.Context(), kv.Write{Key: k, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	both, err := seal.New(inner, prefixes, key("new", 2), key("old", 1))
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := old.Get(t.Context(), k); err != nil || p.Stale {
		t.Errorf("sealed with the first key: stale %t, %v", p.Stale, err)
	}
	if p, _, err := both.Get(t.Context(), k); err != nil || string(p.Value) != "v" || !p.Stale {
		t.Errorf("the old key still reads: %q, stale %t, %v", p.Value, p.Stale, err)
	}
	lone, err := seal.New(inner, prefixes, key("new", 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := lone.Get(t.Context(), k); err == nil || !strings.Contains(err.Error(), `"old"`) {
		t.Errorf("without the key: %v", err)
	}
	// A value moved to another key, or changed, is refused.
	raw, _, err := inner.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(raw.Value)
	bad[len(bad)-1] ^= 1
	for name, value := range map[string][]byte{"moved": raw.Value, "flipped": bad, "short": []byte("k8s:enc:aesgcm:v1:old:x"), "odd": []byte("k8s:enc:aesgcm:v1:")} {
		if _, err := inner.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a/" + name, Value: value}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := both.Get(t.Context(), "/registry/secrets/a/"+name); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
	// What was stored before sealing began is read as it is.
	if _, err := inner.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a/plain", Value: []byte("clear")}); err != nil {
		t.Fatal(err)
	}
	if p, _, err := both.Get(t.Context(), "/registry/secrets/a/plain"); err != nil || string(p.Value) != "clear" || !p.Stale {
		t.Errorf("plain: %q, stale %t, %v", p.Value, p.Stale, err)
	}
	for _, bad := range []seal.Key{{Name: "a:b", Secret: make([]byte, 32)}, {Name: "", Secret: make([]byte, 32)}, {Name: "x", Secret: make([]byte, 5)}} {
		if _, err := seal.New(inner, prefixes, bad); err == nil {
			t.Errorf("key %+v was taken", bad)
		}
	}
}
