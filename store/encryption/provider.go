package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/nacl/secretbox"
)

// Key is an encryption key with its name.
type Key struct {
	Name   string
	Secret []byte
}

// Provider encrypts and decrypts with one algorithm and one key. The zero value leaves values unencrypted.
type Provider struct {
	// prefix is the prefix of its values: the algorithm and the name of the key.
	prefix string
	seal   func(key string, value []byte) []byte
	open   func(key string, sealed []byte) ([]byte, error)
	// envelope replaces seal and open if the key is in a key management service.
	envelope Envelope
}

// Envelope encrypts with a key in a key management service.
type Envelope interface {
	Seal(ctx context.Context, key string, value []byte) ([]byte, error)
	// Open decrypts a value. stale reports that the value would now be encrypted with another key. If the service does
	// not answer, the error is ErrKMSUnavailable.
	Open(ctx context.Context, key string, sealed []byte) (value []byte, stale bool, err error)
}

// ErrKMSUnavailable is the error of an operation that failed because a key management service does not answer. It may succeed
// later.
var ErrKMSUnavailable = errors.New("a key management service is away")

// KMS returns a provider that encrypts with a KMS v2 plugin, stored under the name of the provider.
func KMS(name string, e Envelope) (p Provider, err error) {
	if p.prefix, err = prefixOf("kms", Key{Name: name}); err != nil {
		return p, err
	}
	p.prefix, p.envelope = encryptedPrefix+"kms:v2:"+name+":", e
	return p, nil
}

// isPlain reports whether values are left unencrypted.
func (p *Provider) isPlain() bool { return p.seal == nil && p.envelope == nil }

// Plain returns a provider that leaves values unencrypted.
func Plain() Provider { return Provider{} }

// encryptedPrefix is the prefix of every encrypted value.
const encryptedPrefix = "k8s:enc:"

func prefixOf(way string, k Key) (string, error) {
	if k.Name == "" || strings.Contains(k.Name, ":") {
		return "", fmt.Errorf("seal: %q is no name for a key", k.Name)
	}
	return encryptedPrefix + way + ":v1:" + k.Name + ":", nil
}

var errShort = errors.New("the stored data was shorter than the required size")

// AESGCM returns a provider for AES-GCM with a key of 16, 24 or 32 bytes. The key of the store is authenticated data,
// so a ciphertext cannot be moved to another key.
func AESGCM(k Key) (p Provider, err error) {
	if p.prefix, err = prefixOf("aesgcm", k); err != nil {
		return p, err
	}
	block, err := aes.NewCipher(k.Secret)
	if err != nil {
		return p, fmt.Errorf("seal: key %s: %w", k.Name, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return p, fmt.Errorf("seal: key %s: %w", k.Name, err)
	}
	n := aead.NonceSize()
	p.seal = func(key string, value []byte) []byte {
		out := make([]byte, n, n+len(value)+aead.Overhead())
		_, _ = rand.Read(out) // never fails: the process ends if the kernel has no randomness
		return aead.Seal(out, out, value, []byte(key))
	}
	p.open = func(key string, sealed []byte) ([]byte, error) {
		if len(sealed) < n {
			return nil, errShort
		}
		return aead.Open(nil, sealed[:n], sealed[n:], []byte(key))
	}
	return p, nil
}

// AESCBC returns a provider for AES-CBC with a key of 16, 24 or 32 bytes. It does not detect manipulation; it exists
// for stores that already use it.
func AESCBC(k Key) (p Provider, err error) {
	if p.prefix, err = prefixOf("aescbc", k); err != nil {
		return p, err
	}
	block, err := aes.NewCipher(k.Secret)
	if err != nil {
		return p, fmt.Errorf("seal: key %s: %w", k.Name, err)
	}
	const size = aes.BlockSize
	p.seal = func(_ string, value []byte) []byte {
		pad := size - len(value)%size
		out := make([]byte, size+len(value)+pad)
		_, _ = rand.Read(out[:size])
		copy(out[size:], value)
		for i := range pad {
			out[len(out)-1-i] = byte(pad)
		}
		cipher.NewCBCEncrypter(block, out[:size]).CryptBlocks(out[size:], out[size:])
		return out
	}
	p.open = func(_ string, sealed []byte) ([]byte, error) {
		if len(sealed) < 2*size || len(sealed)%size != 0 {
			return nil, errShort
		}
		out := make([]byte, len(sealed)-size)
		cipher.NewCBCDecrypter(block, sealed[:size]).CryptBlocks(out, sealed[size:])
		pad := int(out[len(out)-1])
		if pad == 0 || pad > size {
			return nil, errors.New("the padding is not valid")
		}
		for _, b := range out[len(out)-pad:] {
			if int(b) != pad {
				return nil, errors.New("the padding is not valid")
			}
		}
		return out[:len(out)-pad], nil
	}
	return p, nil
}

// Secretbox returns a provider for NaCl secretbox with a key of 32 bytes.
func Secretbox(k Key) (p Provider, err error) {
	if p.prefix, err = prefixOf("secretbox", k); err != nil {
		return p, err
	}
	if len(k.Secret) != 32 {
		return p, fmt.Errorf("seal: key %s: a key of secretbox has 32 bytes, not %d", k.Name, len(k.Secret))
	}
	secret := [32]byte(k.Secret)
	const n = 24
	p.seal = func(_ string, value []byte) []byte {
		var nonce [n]byte
		_, _ = rand.Read(nonce[:])
		return secretbox.Seal(nonce[:], value, &nonce, &secret)
	}
	p.open = func(_ string, sealed []byte) ([]byte, error) {
		if len(sealed) < n+secretbox.Overhead {
			return nil, errShort
		}
		nonce := [n]byte(sealed[:n])
		out, ok := secretbox.Open(nil, sealed[n:], &nonce, &secret)
		if !ok {
			return nil, errors.New("message authentication failed")
		}
		return out, nil
	}
	return p, nil
}
