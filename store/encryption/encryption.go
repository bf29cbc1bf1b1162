// Package encryption encrypts the values of chosen keys on their way to the store and decrypts them on their way back, so that
// a copy of the data folder's database does not give secrets away. It wraps a store and is one to its callers.
//
// A sealed value is laid out as Kubernetes lays it out: "k8s:enc:", the provider, the name of the key, and what the provider
// made of the value. A value without that was stored before sealing began, and passes as it is. What is not sealed as it
// would be today is stale: to write it again is how keys are rotated.
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

// Store is what is wrapped.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
}

// Rule says how the values of some keys are encrypted: by the first provider. All of them decrypt.
type Rule struct {
	// Prefixes are how the keys begin.
	Prefixes  []string
	Providers []Provider
}

// Sealed is a store whose chosen keys are encrypted.
type Sealed struct {
	Store
	rules atomic.Pointer[[]Rule]
}

// New seals a store by rules. Of several that fit a key the first counts.
func New(inner Store, rules ...Rule) (*Sealed, error) {
	s := &Sealed{Store: inner}
	return s, s.Set(rules...)
}

// Set replaces the rules. What was sealed by the former ones can be read only if the new ones have its key too.
func (s *Sealed) Set(rules ...Rule) error {
	for _, r := range rules {
		if len(r.Providers) == 0 {
			return errors.New("seal: no provider")
		}
		for i, p := range r.Providers {
			if slices.ContainsFunc(r.Providers[:i], func(o Provider) bool { return o.mark == p.mark }) {
				return fmt.Errorf("seal: there are two keys for %q", p.mark)
			}
		}
	}
	s.rules.Store(&rules)
	return nil
}

// rule finds the rule for a key; nil for none.
func (s *Sealed) rule(key string) *Rule {
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
		return append([]byte(p.mark), p.seal(key, value)...), nil
	}
	sealed, err := p.envelope.Seal(ctx, key, value)
	if err != nil {
		return nil, fmt.Errorf("encrypt with %q: %w", KeyName([]byte(p.mark)), err)
	}
	return append([]byte(p.mark), sealed...), nil
}

// open decrypts a pair in place of its value. One that cannot be decrypted says so, so that it does not take the others away.
// It is an error if a key management service does not answer: the value may be decrypted later, and must not be taken for lost.
func (s *Sealed) open(ctx context.Context, p *kv.Pair) error {
	r := s.rule(p.Key)
	sealed := bytes.HasPrefix(p.Value, []byte(marked))
	switch {
	case p.Value == nil || r == nil && !sealed:
	case !sealed:
		p.Stale = !r.Providers[0].isPlain()
	case r == nil:
		p.Err = fmt.Errorf("it is encrypted with key %q, and this server has no keys for it", KeyName(p.Value))
	default:
		p.Err = r.open(ctx, p)
	}
	if errors.Is(p.Err, ErrAway) {
		return fmt.Errorf("%s: %w", p.Key, p.Err)
	}
	return nil
}

// Open decrypts a pair as the store has it. Its Err says why it cannot be decrypted.
func (s *Sealed) Open(ctx context.Context, p kv.Pair) kv.Pair {
	_ = s.open(ctx, &p) // it is in Err, too
	return p
}

// open decrypts a sealed pair with the provider and the key that have sealed it.
func (r *Rule) open(ctx context.Context, p *kv.Pair) error {
	for i, way := range r.Providers {
		sealed, ours := bytes.CutPrefix(p.Value, []byte(way.mark))
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

// KeyName is the name of the key that a stored value is encrypted with; empty if it is not encrypted.
func KeyName(value []byte) string {
	if !bytes.HasPrefix(value, []byte(marked)) {
		return ""
	}
	parts := bytes.SplitN(value[:min(len(value), 512)], []byte(":"), 6) // k8s:enc:PROVIDER:v1:NAME:
	if len(parts) < 6 {
		return "?"
	}
	return string(parts[4])
}

// Get reads one pair.
func (s *Sealed) Get(ctx context.Context, key string) (kv.Pair, bool, error) {
	p, found, err := s.Store.Get(ctx, key)
	if err == nil && found {
		err = s.open(ctx, &p)
	}
	return p, found, err
}

// List reads a page.
func (s *Sealed) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	page, err := s.Store.List(ctx, r)
	for i := range page.Pairs {
		if err := s.open(ctx, &page.Pairs[i]); err != nil {
			return kv.Page{}, err
		}
	}
	return page, err
}

// Commit makes a transaction.
func (s *Sealed) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	cloned := false
	for i, w := range writes {
		r := s.rule(w.Key)
		if r == nil || w.Value == nil {
			continue
		}
		if !cloned {
			writes, cloned = slices.Clone(writes), true // the caller's stay in the clear
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
func (s *Sealed) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
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
