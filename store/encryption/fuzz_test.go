package encryption

import (
	"bytes"
	"testing"

	"proa.dev/kv"
)

// FuzzOpen decrypts arbitrary values: each is decrypted or is an error, and an encrypted value is decrypted only under
// its own key.
func FuzzOpen(f *testing.F) {
	var providers []Provider
	for _, providerName := range []func(Key) (Provider, error){AESGCM, AESCBC, Secretbox} {
		p, err := providerName(Key{Name: "k", Secret: bytes.Repeat([]byte{7}, 32)})
		if err != nil {
			f.Fatal(err)
		}
		providers = append(providers, p)
	}
	for i := range providers {
		first := Rule{Providers: providers[i:]}
		sealed, err := first.seal(f.Context(), "/registry/secrets/ns/a", []byte("value"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sealed, []byte("value"))
	}
	f.Add([]byte("k8s:enc:aesgcm:v1:k:"), []byte(""))
	f.Add([]byte("k8s:enc:aescbc:v1:k:short"), []byte("x"))
	f.Add([]byte("k8s:enc:"), []byte{0})
	f.Fuzz(func(t *testing.T, stored, value []byte) {
		s, err := New(nil, Rule{Prefixes: []string{"/registry/secrets/"}, Providers: providers})
		if err != nil {
			t.Fatal(err)
		}
		p := kv.Pair{Key: "/registry/secrets/ns/a", Value: bytes.Clone(stored)}
		p = s.Open(t.Context(), p)
		sealed, err := s.rule(p.Key).seal(t.Context(), p.Key, value)
		if err != nil {
			t.Fatal(err)
		}
		back := s.Open(t.Context(), kv.Pair{Key: p.Key, Value: bytes.Clone(sealed)})
		if back.Err != nil || !bytes.Equal(back.Value, value) || back.Stale {
			t.Errorf("%q came back as %+v", value, back)
		}
		if moved := s.Open(t.Context(), kv.Pair{Key: "/registry/secrets/ns/b", Value: sealed}); moved.Err == nil {
			t.Errorf("%q was opened under another key", value)
		}
	})
}
