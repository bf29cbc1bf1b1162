package state

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/server/apistatus"
	"proa.dev/watch"
)

// LookUp finds an object in its cache. For a stored object that cannot be decoded it returns an error, not that there
// is none.
func LookUp(cache *watch.Cache, key string) (*watch.Entry, bool, error) {
	if e, found := cache.Get(key); found {
		return e, true, nil
	}
	return nil, false, apistatus.FromStore(cache.Unreadable(key))
}

// MaxNamedKeys is how many keys a warning or an error names at most.
const MaxNamedKeys = 5

// UnreadableError returns the error for a request for several objects of which those under these keys cannot be
// decoded; nil when there are none.
func UnreadableError(cache *watch.Cache, keys []string) error {
	var errs []error
	for _, k := range keys[:min(len(keys), MaxNamedKeys)] {
		if err := cache.Unreadable(k); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInternalError(fmt.Errorf("unable to transform or decode %d objects: %w", len(keys), errors.Join(errs...)))
}

// Unreadable returns the number of stored objects that cannot be decoded, for each resource that has some.
func (s *State) Unreadable() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, def := range s.defs.Load().stored {
		if c := s.caches[cacheName(def)]; c != nil {
			if n := len(c.UnreadableKeys(c.Prefix)); n > 0 {
				out[def.Resource().String()] = n
			}
		}
	}
	return out
}

// RereadUnreadable reads the resources again that have objects which could not be decrypted, after the encryption keys
// have changed.
func (s *State) RereadUnreadable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.caches {
		c.Reread()
	}
}
