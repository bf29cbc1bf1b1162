// Package seal encrypts the values of chosen keys on their way to the store and decrypts them on their way back, so that
// a copy of the data folder's database does not give secrets away. It wraps a store and is one to its callers.
//
// A sealed value is laid out as Kubernetes lays it out: "k8s:enc:", the provider, the name of the key, and what the provider
// made of the value. A value without that was stored before sealing began, and passes as it is. What is not sealed as it
// would be today is stale: to write it again is how keys are rotated.
package seal

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
func (r *Rule) seal(key string, value []byte) []byte {
	p := r.Providers[0]
	if p.seal == nil {
		return value
	}
	return append([]byte(p.mark), p.seal(key, value)...)
}

// open decrypts a pair in place of its value.
func (s *Sealed) open(p *kv.Pair) error {
	r := s.rule(p.Key)
	if r == nil || p.Value == nil {
		return nil
	}
	if !bytes.HasPrefix(p.Value, []byte(marked)) {
		p.Stale = r.Providers[0].seal != nil
		return nil
	}
	for i, way := range r.Providers {
		sealed, ours := bytes.CutPrefix(p.Value, []byte(way.mark))
		if !ours || way.open == nil {
			continue
		}
		value, err := way.open(p.Key, sealed)
		if err != nil {
			return fmt.Errorf("seal: %s cannot be decrypted with %s: %w", p.Key, way.mark, err)
		}
		p.Value, p.Stale = value, i > 0
		return nil
	}
	with := p.Value[:min(len(p.Value), 64)]
	if parts := bytes.SplitN(p.Value, []byte(":"), 6); len(parts) == 6 && len(parts[4]) < 64 {
		with = parts[4]
	}
	return fmt.Errorf("seal: %s is encrypted with key %q, which is not among the keys of this server", p.Key, with)
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
	cloned := false
	for i, w := range writes {
		r := s.rule(w.Key)
		if r == nil || w.Value == nil {
			continue
		}
		if !cloned {
			writes, cloned = slices.Clone(writes), true // the caller's stay in the clear
		}
		writes[i].Value = r.seal(w.Key, w.Value)
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
