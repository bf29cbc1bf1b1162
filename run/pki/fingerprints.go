package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
)

// Fingerprints returns the fingerprints of the public keys that all servers of a cluster must have in common, by the
// name of what they are, the one in use first: of the authorities, which sign certificates, and of the keys of tokens. It
// only reads the folder dir; what is missing or cannot be read there has none.
func Fingerprints(dir string) map[string][]string {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil
		}
		return data
	}
	authority := func(file string) (out []string) {
		certs, err := DecodeCerts(read(file + ".crt"))
		if err != nil {
			return nil
		}
		for _, c := range certs {
			out = append(out, fingerprint(c.RawSubjectPublicKeyInfo))
		}
		return out
	}
	tokens := []string{}
	if key, err := decodeKey(read(fileSAKey)); err == nil {
		if der, err := x509.MarshalPKIXPublicKey(key.Public()); err == nil {
			tokens = append(tokens, fingerprint(der))
		}
	}
	if keys, err := decodePublicKeys(read(fileSAPublic)); err == nil && len(tokens) > 0 {
		for _, k := range keys {
			der, err := x509.MarshalPKIXPublicKey(k.key)
			if f := fingerprint(der); err == nil && !slices.Contains(tokens, f) {
				tokens = append(tokens, f)
			}
		}
	}
	return map[string][]string{"certificate-authority": authority(fileCA), "front-proxy-authority": authority(fileFrontProxyCA),
		"service-account-key": tokens}
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:16])
}
