package run

import (
	"testing"

	"proa.dev/kinds"
)

// A value of a setting is understood or refused, whatever it is. Settings that name files are left out: what they do depends on
// the machine.
func FuzzSettings(f *testing.F) {
	seeds := []string{"127.0.0.1:6443", "10.0.0.0/8,fd00::/64", "a=b:NoSchedule", "cpu=1,memory=1Gi", "0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=1Gi",
		"memory.available<100Mi", "memory.available=1m30s", "0=10", "full-pcpus-only=true", "corp.example.org=10.0.0.53", "https://[::1]:2379", "A=true"}
	for i := range Settings() {
		f.Add(byte(i), seeds[i%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, at byte, value string) {
		all := Settings()
		s := all[int(at)%len(all)]
		if s.isPath() || s.Name == "data-dir" {
			return
		}
		var once, twice Config
		if s.Set(&once, []string{value}) != nil {
			return
		}
		if err := s.Set(&twice, []string{value}); err != nil {
			t.Errorf("%s: %q is understood once, and then: %v", s.Name, value, err)
		}
	})
}

// A token to join with is read only as it is written.
func FuzzJoinToken(f *testing.F) {
	f.Add("abcdef.0123456789abcdef.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	f.Add("abcdef.0123456789abcdef")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err == nil && token.String() != text {
			t.Errorf("%q is read as %q", text, token)
		}
	})
}

// A file of keys yields keys that can seal, or an error.
func FuzzSealKeys(f *testing.F) {
	f.Add([]byte("# keys\nnew AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseSealKeys(text)
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

// An EncryptionConfiguration is understood, with a way to write for each rule, or refused.
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
