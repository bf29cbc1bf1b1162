package codec

import (
	"sync"

	"proa.dev/kinds/kind"
)

// The bounds of what is remembered: so many texts, none longer.
const (
	maxInterned  = 2048
	longInterned = 4096
)

// interned lets objects share what is the same in many of them: the lists of fields that a manager owns, which are a good
// part of a small object, and equal in all Pods of a Deployment. Nobody changes such a list in its place.
type interned struct {
	mu    sync.Mutex // guards texts
	texts map[string][]byte
}

// share replaces the field lists of an object by equal ones that are there already.
func (i *interned) share(obj kind.Object) {
	entries := obj.GetManagedFields()
	if len(entries) == 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range entries {
		if e.FieldsV1 == nil {
			continue
		}
		raw := e.FieldsV1.Raw //nolint:staticcheck // SA1019: the other ways copy
		if len(raw) > longInterned {
			continue
		}
		if same, ok := i.texts[string(raw)]; ok {
			e.FieldsV1.Raw = same //nolint:staticcheck // SA1019: the other ways copy
			continue
		}
		if i.texts == nil || len(i.texts) >= maxInterned {
			i.texts = make(map[string][]byte) // those in use stay with their objects; the next ones find each other again
		}
		i.texts[string(raw)] = raw
	}
}
