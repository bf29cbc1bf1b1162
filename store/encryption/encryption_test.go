package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"proa.dev/kv"
	"proa.dev/store"
	"proa.dev/store/encryption"
	"proa.dev/store/memory"
	"proa.dev/store/storetest"
)

// rule returns a rule for prefixes; the first key encrypts.
func rule(t *testing.T, prefixes []string, keys ...encryption.Key) encryption.Rule {
	t.Helper()
	r := encryption.Rule{Prefixes: prefixes}
	for _, k := range keys {
		p, err := encryption.AESGCM(k)
		if err != nil {
			t.Fatal(err)
		}
		r.Providers = append(r.Providers, p)
	}
	return r
}

func key(name string, b byte) encryption.Key {
	return encryption.Key{Name: name, Secret: bytes.Repeat([]byte{b}, 32)}
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

// testStore is an encrypted store with the additional methods that storetest needs.
type testStore struct {
	*encryption.EncryptedStore
	inner *store.Etcd
}

func (w testStore) Compact(ctx context.Context, rev int64) error { return w.inner.Compact(ctx, rev) }

// TestConformance runs the conformance test of stores on an encrypted store.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		inner := embed(t)
		s, err := encryption.New(inner, rule(t, []string{"/"}, key("k", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return testStore{s, inner}
	})
}

func TestOnlyMatchingKeysAreEncrypted(t *testing.T) {
	inner := embed(t)
	s, err := encryption.New(inner, rule(t, []string{"/registry/secrets/"}, key("one", 1)))
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
	// A conflict has the decrypted current value.
	_, err = s.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a/b", Value: []byte("x")})
	if c, lost := errors.AsType[*kv.Conflict](err); !lost || string(c.Now.Value) != text {
		t.Errorf("conflict %v", err)
	}
}

func TestKeyRotationAndForgedValues(t *testing.T) {
	inner := embed(t)
	prefixes := []string{"/registry/secrets/"}
	old, err := encryption.New(inner, rule(t, prefixes, key("old", 1)))
	if err != nil {
		t.Fatal(err)
	}
	const k = "/registry/secrets/a/b"
	if _, err := old.Commit(t.Context(), kv.Write{Key: k, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	both, err := encryption.New(inner, rule(t, prefixes, key("new", 2), key("old", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := old.Get(t.Context(), k); err != nil || p.Stale {
		t.Errorf("sealed with the first key: stale %t, %v", p.Stale, err)
	}
	if p, _, err := both.Get(t.Context(), k); err != nil || string(p.Value) != "v" || !p.Stale {
		t.Errorf("the old key still reads: %q, stale %t, %v", p.Value, p.Stale, err)
	}
	singleKey, err := encryption.New(inner, rule(t, prefixes, key("new", 2)))
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := singleKey.Get(t.Context(), k); err != nil || p.Err == nil || !strings.Contains(p.Err.Error(), `"old"`) {
		t.Errorf("without the key: %v", err)
	}
	// A value moved to another key, or changed, is refused.
	raw, _, err := inner.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(raw.Value)
	bad[len(bad)-1] ^= 1
	for name, value := range map[string][]byte{"moved": raw.Value, "flipped": bad, "short": []byte("k8s:enc:aesgcm:v1:old:x"),
		"odd": []byte("k8s:enc:aesgcm:v1:")} {
		if _, err := inner.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a/" + name, Value: value}); err != nil {
			t.Fatal(err)
		}
		if p, _, err := both.Get(t.Context(), "/registry/secrets/a/"+name); err != nil || p.Err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
	// A value that was stored unencrypted is returned as it is.
	if _, err := inner.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a/plain", Value: []byte("clear")}); err != nil {
		t.Fatal(err)
	}
	if p, _, err := both.Get(t.Context(), "/registry/secrets/a/plain"); err != nil || string(p.Value) != "clear" || !p.Stale {
		t.Errorf("plain: %q, stale %t, %v", p.Value, p.Stale, err)
	}
	for _, bad := range []encryption.Key{{Name: "a:b", Secret: make([]byte, 32)}, {Name: "", Secret: make([]byte, 32)},
		{Name: "x", Secret: make([]byte, 5)}} {
		for providerName, newProvider := range newProviders() {
			if _, err := newProvider(bad); err == nil {
				t.Errorf("%s took key %+v", providerName, bad)
			}
		}
	}
	twice := rule(t, prefixes, key("a", 1), key("a", 2))
	if _, err := encryption.New(inner, twice); err == nil {
		t.Error("two keys of one name were taken")
	}
	if _, err := encryption.New(inner, encryption.Rule{Prefixes: prefixes}); err == nil {
		t.Error("a rule without a provider was taken")
	}
}

func newProviders() map[string]func(encryption.Key) (encryption.Provider, error) {
	return map[string]func(encryption.Key) (encryption.Provider, error){"aesgcm": encryption.AESGCM, "aescbc": encryption.AESCBC,
		"secretbox": encryption.Secretbox}
}

// TestEveryProvider encrypts values of many lengths with every provider, and changes from each provider to each other.
func TestEveryProvider(t *testing.T) {
	inner := embed(t)
	s, err := encryption.New(inner)
	if err != nil {
		t.Fatal(err)
	}
	const k = "/registry/secrets/a/b"
	set := func(providers ...encryption.Provider) {
		t.Helper()
		if err := s.Set(encryption.Rule{Prefixes: []string{"/registry/secrets/"}, Providers: providers}); err != nil {
			t.Fatal(err)
		}
	}
	rev := int64(0)
	var all []encryption.Provider
	for providerName, newProvider := range newProviders() {
		p, err := newProvider(key(providerName, 3))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		for n := range 40 {
			set(p)
			value := bytes.Repeat([]byte{byte(n)}, n+1)
			if rev, err = s.Commit(t.Context(), kv.Write{Key: k, Value: value, Rev: rev}); err != nil {
				t.Fatal(err)
			}
			got, _, err := s.Get(t.Context(), k)
			if err != nil || !bytes.Equal(got.Value, value) || got.Stale {
				t.Fatalf("%s of %d bytes: %q, stale %t, %v", providerName, n, got.Value, got.Stale, err)
			}
			raw, _, err := inner.Get(t.Context(), k)
			if err != nil || !bytes.HasPrefix(raw.Value, []byte("k8s:enc:"+providerName+":v1:"+providerName+":")) {
				t.Fatalf("%s is stored as %q, %v", providerName, raw.Value, err)
			}
			// Values of the former provider can still be read, and are stale.
			for _, first := range append(slices.Clone(all[:len(all)-1]), encryption.Plain()) {
				set(first, p)
				if got, _, err := s.Get(t.Context(), k); err != nil || !bytes.Equal(got.Value, value) || !got.Stale {
					t.Fatalf("%s after a change: %q, stale %t, %v", providerName, got.Value, got.Stale, err)
				}
			}
		}
		// Truncated or changed values are detected by providers that authenticate.
		raw, _, err := inner.Get(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		set(p)
		if rev, err = inner.Commit(t.Context(),
			kv.Write{Key: k, Value: raw.Value[:len(raw.Value)-len(raw.Value)/2], Rev: rev}); err != nil {
			t.Fatal(err)
		}
		if p, _, err := s.Get(t.Context(), k); err != nil || p.Err == nil {
			t.Errorf("%s read a value that was cut", providerName)
		}
	}
	// Without encryption a value is stored as it is.
	set(append([]encryption.Provider{encryption.Plain()}, all...)...)
	if _, err = s.Commit(t.Context(), kv.Write{Key: k, Value: []byte("clear"), Rev: rev}); err != nil {
		t.Fatal(err)
	}
	if raw, _, err := inner.Get(t.Context(), k); err != nil || string(raw.Value) != "clear" {
		t.Errorf("stored as %q, %v", raw.Value, err)
	}
}

// TestOneValueThatCannotBeDecrypted checks that the other values of a list or watch can still be read.
func TestOneValueThatCannotBeDecrypted(t *testing.T) {
	inner := memory.New(memory.Config{})
	t.Cleanup(func() { _ = inner.Close() })
	s, err := encryption.New(inner, rule(t, []string{"/registry/secrets/"}, key("one", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inner.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a", Value: []byte("k8s:enc:aesgcm:v1:lost:x")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), kv.Write{Key: "/registry/secrets/b", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), kv.Range{Prefix: "/registry/secrets/"})
	if err != nil || len(page.Pairs) != 2 || page.Pairs[0].Err == nil || page.Pairs[1].Err != nil || string(page.Pairs[1].Value) != "v" {
		t.Errorf("the list is %+v, %v", page, err)
	}
	seen := 0
	for b, err := range s.Watch(t.Context(), "/registry/secrets/", 1) {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range b.Changes {
			if lost := c.Key == "/registry/secrets/a"; lost != (c.Err != nil) {
				t.Errorf("a change is %+v", c)
			}
			seen++
		}
		if seen >= 2 {
			break
		}
	}
	_, err = s.Commit(t.Context(), kv.Write{Key: "/registry/secrets/a", Value: []byte("new")})
	if c, lost := errors.AsType[*kv.Conflict](err); !lost || c.Now.Err == nil {
		t.Errorf("a write over it is %v", err)
	}
}
