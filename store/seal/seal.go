// Package seal encrypts the values of chosen keys on their way to the store and decrypts them on their way back, so that
// a copy of the data folder's database does not give secrets away. It wraps a store and is one to its callers.
//
// A sealed value is laid out as Kubernetes lays out its aesgcm provider: "k8s:enc:aesgcm:v1:NAME:", a nonce, and the
// ciphertext, bound to its key. A value without that prefix was stored before sealing began and passes as it is.
package seal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"proa.dev/kv"
)

// Store is what is wrapped.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
}

// Key is a named key of 16, 24 or 32 bytes.
type Key struct {
	Name   string
	Secret []byte
}

// Sealed is a store whose chosen keys are encrypted.
type Sealed struct {
	Store
	prefixes []string
	first    string
	ciphers  map[string]cipher.AEAD
}

const mark = "k8s:enc:aesgcm:v1:"

// New seals the keys with the prefixes. The first key encrypts; all of them decrypt.
func New(inner Store, prefixes []string, keys ...Key) (*Sealed, error) {
	if len(keys) == 0 {
		return nil, errors.New("seal: no key")
	}
	s := &Sealed{Store: inner, prefixes: prefixes, first: keys[0].Name, ciphers: map[string]cipher.AEAD{}}
	for _, k := range keys {
		if k.Name == "" || strings.Contains(k.Name, ":") {
			return nil, fmt.Errorf("seal: %q is no name for a key", k.Name)
		}
		block, err := aes.NewCipher(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("seal: key %s: %w", k.Name, err)
		}
		if s.ciphers[k.Name], err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("seal: key %s: %w", k.Name, err)
		}
	}
	return s, nil
}

func (s *Sealed) chosen(key string) bool {
	for _, p := range s.prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

// seal encrypts a value for its key.
func (s *Sealed) seal(key string, value []byte) []byte {
	aead := s.ciphers[s.first]
	head := len(mark) + len(s.first) + 1
	out := make([]byte, head+aead.NonceSize(), head+aead.NonceSize()+len(value)+aead.Overhead())
	copy(out, mark+s.first+":")
	nonce := out[head:]
	_, _ = rand.Read(nonce) // never fails: the process ends if the kernel has no randomness
	return aead.Seal(out, nonce, value, []byte(key))
}

// open decrypts a pair in place of its value.
func (s *Sealed) open(p *kv.Pair) error {
	if !s.chosen(p.Key) {
		return nil
	}
	rest, sealed := bytes.CutPrefix(p.Value, []byte(mark))
	if !sealed {
		p.Stale = p.Value != nil
		return nil
	}
	name, rest, ok := bytes.Cut(rest, []byte(":"))
	aead := s.ciphers[string(name)]
	if !ok || aead == nil || len(rest) < aead.NonceSize() {
		return fmt.Errorf("seal: %s is encrypted with key %.64q, which is not among the keys of this server", p.Key, name)
	}
	n := aead.NonceSize()
	value, err := aead.Open(nil, rest[:n], rest[n:], []byte(p.Key))
	if err != nil {
		return fmt.Errorf("seal: %s cannot be decrypted with key %s: %w", p.Key, name, err)
	}
	p.Value, p.Stale = value, string(name) != s.first
	return nil
}

// Get reads one pair.
func (s *Sealed) Get(ctx context.Context, key string) (kv.Pair, bool, error) {
	p, found, err := s.Store.Get(ctx, key)
	if err == nil && found {
		err = s.open(&p)
	}
	return p, found, err
}

// List reads a page.
func (s *Sealed) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	page, err := s.Store.List(ctx, r)
	for i := range page.Pairs {
		if err == nil {
			err = s.open(&page.Pairs[i])
		}
	}
	return page, err
}

// Commit makes a transaction.
func (s *Sealed) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	if slices.ContainsFunc(writes, func(w kv.Write) bool { return s.chosen(w.Key) }) {
		writes = slices.Clone(writes) // the caller's stay in the clear
		for i, w := range writes {
			if w.Value != nil && s.chosen(w.Key) {
				writes[i].Value = s.seal(w.Key, w.Value)
			}
		}
	}
	rev, err := s.Store.Commit(ctx, writes...)
	if c, lost := errors.AsType[*kv.Conflict](err); lost {
		if oerr := s.open(&c.Now); oerr != nil {
			return 0, oerr
		}
	}
	return rev, err
}

// Watch yields changes.
func (s *Sealed) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.Store.Watch(ctx, prefix, after) {
			for i := range b.Changes {
				if err == nil {
					err = errors.Join(s.open(&b.Changes[i].Pair), s.open(&b.Changes[i].Prev))
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}
