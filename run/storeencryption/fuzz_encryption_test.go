package storeencryption

import (
	"testing"

	"proa.dev/kinds"
)

// FuzzKeyFile checks that a key file yields usable keys or an error.
func FuzzKeyFile(f *testing.F) {
	f.Add([]byte("# keys\nnew AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseKeyFile(text)
		if err == nil && len(keys) == 0 {
			t.Error("neither a key nor an error")
		}
		for _, k := range keys {
			if len(k.Secret) != 32 || k.Name == "" {
				t.Errorf("a key %q of %d bytes", k.Name, len(k.Secret))
			}
		}
	})
}

// FuzzEncryption checks that an EncryptionConfiguration yields a provider for writing for each rule, or an error.
func FuzzEncryption(f *testing.F) {
	f.Add([]byte(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, "*.apps"]
  providers:
  - secretbox: {keys: [{name: a, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}
  - identity: {}
`))
	f.Add([]byte("kind: EncryptionConfiguration\nresources: [{resources: ['*.*'], providers: [{}]}]"))
	defs := kinds.All()
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := parseEncryption(text, defs, checkKMS)
		if err != nil {
			return
		}
		for _, r := range rules {
			if len(r.Providers) == 0 {
				t.Errorf("nothing writes %v", r.Prefixes)
			}
		}
	})
}
