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

// Key is a named key.
type Key struct {
	Name   string
	Secret []byte
}

// Provider is one way to encrypt, with one key. The zero value leaves values as they are.
type Provider struct {
	// mark is what its values begin with: the way and the name of the key.
	mark string
	seal func(key string, value []byte) []byte
	open func(key string, sealed []byte) ([]byte, error)
	// envelope does both for a key that somebody else has.
	envelope Envelope
}

// Envelope encrypts with the help of a key management service.
type Envelope interface {
	Seal(ctx context.Context, key string, value []byte) ([]byte, error)
	// Open decrypts a value. Stale says that it would be encrypted with another key now. An error that is ErrAway may be over soon.
	Open(ctx context.Context, key string, sealed []byte) (value []byte, stale bool, err error)
}

// ErrAway says that a key management service does not answer: what it is needed for may be possible later.
var ErrAway = errors.New("a key management service is away")

// KMS encrypts with a provider of that name for version 2 of the API of key management services.
func KMS(name string, e Envelope) (p Provider, err error) {
	if p.mark, err = markOf("kms", Key{Name: name}); err != nil {
		return p, err
	}
	p.mark, p.envelope = marked+"kms:v2:"+name+":", e
	return p, nil
}

// isPlain says that values are left as they are.
func (p *Provider) isPlain() bool { return p.seal == nil && p.envelope == nil }

// Plain leaves values as they are.
func Plain() Provider { return Provider{} }

// marked begins every value that somebody has encrypted.
const marked = "k8s:enc:"

func markOf(way string, k Key) (string, error) {
	if k.Name == "" || strings.Contains(k.Name, ":") {
		return "", fmt.Errorf("seal: %q is no name for a key", k.Name)
	}
	return marked + way + ":v1:" + k.Name + ":", nil
}

var errShort = errors.New("the stored data was shorter than the required size")

// AESGCM encrypts with a key of 16, 24 or 32 bytes, and binds a value to its place in the store.
func AESGCM(k Key) (p Provider, err error) {
	if p.mark, err = markOf("aesgcm", k); err != nil {
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

// AESCBC encrypts with a key of 16, 24 or 32 bytes. It does not notice changes; it is here for stores that have it.
func AESCBC(k Key) (p Provider, err error) {
	if p.mark, err = markOf("aescbc", k); err != nil {
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

// Secretbox encrypts with a key of 32 bytes.
func Secretbox(k Key) (p Provider, err error) {
	if p.mark, err = markOf("secretbox", k); err != nil {
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
