// Package encryption implements encryption at rest: it wraps a store and encrypts the values of chosen keys before they
// are written, so that a copy of the database does not reveal secrets.
//
// An encrypted value has the layout of Kubernetes: "k8s:enc:", the provider, the name of the key, and the ciphertext. A
// value without this prefix was stored before encryption was configured, and is returned as it is. A value that would
// now be encrypted differently is reported as stale; keys are rotated by writing stale values again.
package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"proa.dev/kv"
)

// Store is the store that is wrapped.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
}

// Rule has the providers for keys with some prefixes. The first provider encrypts; all of them decrypt.
type Rule struct {
	Prefixes  []string
	Providers []Provider
}

// EncryptedStore is a store that encrypts the values of chosen keys.
type EncryptedStore struct {
	Store
	rules atomic.Pointer[[]Rule]
}

// New wraps a store. If several rules match a key, the first is used.
func New(inner Store, rules ...Rule) (*EncryptedStore, error) {
	s := &EncryptedStore{Store: inner}
	return s, s.Set(rules...)
}

// Set replaces the rules. Values that were encrypted by the old rules can be read only if the new rules have their
// keys.
func (s *EncryptedStore) Set(rules ...Rule) error {
	for _, r := range rules {
		if len(r.Providers) == 0 {
			return errors.New("seal: no provider")
		}
		for i, p := range r.Providers {
			if slices.ContainsFunc(r.Providers[:i], func(o Provider) bool { return o.prefix == p.prefix }) {
				return fmt.Errorf("seal: there are two keys for %q", p.prefix)
			}
		}
	}
	s.rules.Store(&rules)
	return nil
}

// rule returns the rule for a key; nil if there is none.
func (s *EncryptedStore) rule(key string) *Rule {
	rules := *s.rules.Load()
	for i := range rules {
		for _, p := range rules[i].Prefixes {
			if strings.HasPrefix(key, p) {
				return &rules[i]
			}
		}
	}
	return nil
}

// seal encrypts a value for its key.
func (r *Rule) seal(ctx context.Context, key string, value []byte) ([]byte, error) {
	p := &r.Providers[0]
	switch {
	case p.isPlain():
		return value, nil
	case p.envelope == nil:
		return append([]byte(p.prefix), p.seal(key, value)...), nil
	}
	sealed, err := p.envelope.Seal(ctx, key, value)
	if err != nil {
		return nil, fmt.Errorf("encrypt with %q: %w", KeyName([]byte(p.prefix)), err)
	}
	return append([]byte(p.prefix), sealed...), nil
}

// open decrypts the value of a pair in place. If that is not possible, p.Err is set, so that other pairs can still be
// read. An error is returned only if a key management service does not answer, because the value may be decryptable
// later.
func (s *EncryptedStore) open(ctx context.Context, p *kv.Pair) error {
	r := s.rule(p.Key)
	sealed := bytes.HasPrefix(p.Value, []byte(encryptedPrefix))
	switch {
	case p.Value == nil || r == nil && !sealed:
	case !sealed:
		p.Stale = !r.Providers[0].isPlain()
	case r == nil:
		p.Err = fmt.Errorf("it is encrypted with key %q, and this server has no keys for it", KeyName(p.Value))
	default:
		p.Err = r.open(ctx, p)
	}
	if errors.Is(p.Err, ErrKMSUnavailable) {
		return fmt.Errorf("%s: %w", p.Key, p.Err)
	}
	return nil
}

// Open decrypts a pair of the wrapped store. If that is not possible, Err of the result is set.
func (s *EncryptedStore) Open(ctx context.Context, p kv.Pair) kv.Pair {
	_ = s.open(ctx, &p) // the error is in p.Err, too
	return p
}

// open decrypts a pair with the provider and the key that have encrypted it.
func (r *Rule) open(ctx context.Context, p *kv.Pair) error {
	for i, way := range r.Providers {
		sealed, ours := bytes.CutPrefix(p.Value, []byte(way.prefix))
		if !ours || way.isPlain() {
			continue
		}
		value, stale, err := way.decrypt(ctx, p.Key, sealed)
		if err != nil {
			return fmt.Errorf("it cannot be decrypted with key %q of this server: %w", KeyName(p.Value), err)
		}
		p.Value, p.Stale = value, i > 0 || stale
		return nil
	}
	return fmt.Errorf("it is encrypted with key %q, which is not among the keys of this server", KeyName(p.Value))
}

func (p *Provider) decrypt(ctx context.Context, key string, sealed []byte) (value []byte, stale bool, err error) {
	if p.envelope != nil {
		return p.envelope.Open(ctx, key, sealed)
	}
	value, err = p.open(key, sealed)
	return value, false, err
}

// KeyName returns the name of the key that a stored value is encrypted with; empty if it is not encrypted.
func KeyName(value []byte) string {
	if !bytes.HasPrefix(value, []byte(encryptedPrefix)) {
		return ""
	}
	parts := bytes.SplitN(value[:min(len(value), 512)], []byte(":"), 6) // k8s:enc:PROVIDER:v1:NAME:
	if len(parts) < 6 {
		return "?"
	}
	return string(parts[4])
}

// Get reads one pair.
func (s *EncryptedStore) Get(ctx context.Context, key string) (kv.Pair, bool, error) {
	p, found, err := s.Store.Get(ctx, key)
	if err == nil && found {
		err = s.open(ctx, &p)
	}
	return p, found, err
}

// List reads a page.
func (s *EncryptedStore) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	page, err := s.Store.List(ctx, r)
	for i := range page.Pairs {
		if err := s.open(ctx, &page.Pairs[i]); err != nil {
			return kv.Page{}, err
		}
	}
	return page, err
}

// Commit makes a transaction.
func (s *EncryptedStore) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	cloned := false
	for i, w := range writes {
		r := s.rule(w.Key)
		if r == nil || w.Value == nil {
			continue
		}
		if !cloned {
			writes, cloned = slices.Clone(writes), true // the writes of the caller are not changed
		}
		sealed, err := r.seal(ctx, w.Key, w.Value)
		if err != nil {
			return 0, err
		}
		writes[i].Value = sealed
	}
	rev, err := s.Store.Commit(ctx, writes...)
	if c, lost := errors.AsType[*kv.Conflict](err); lost {
		if err := s.open(ctx, &c.Now); err != nil {
			return 0, err
		}
	}
	return rev, err
}

// Watch yields changes.
func (s *EncryptedStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.Store.Watch(ctx, prefix, after) {
			for i := range b.Changes {
				if away := errors.Join(s.open(ctx, &b.Changes[i].Pair), s.open(ctx, &b.Changes[i].Prev)); away != nil {
					yield(kv.Batch{}, away)
					return
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}
