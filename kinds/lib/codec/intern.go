package codec

import (
	"sync"

	"proa.dev/kinds/kind"
)

// The bounds of the shared field sets: their number, and the length of each.
const (
	maxInterned  = 2048
	longInterned = 4096
)

// interned lets objects share equal parts: the field sets of managedFields, which are a good part of a small object,
// and equal in all Pods of a Deployment. They are never modified in place.
type interned struct {
	mu    sync.Mutex // guards texts
	texts map[string][]byte
}

// share replaces the field sets of an object by equal ones that other objects have.
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
			i.texts = make(map[string][]byte) // objects keep the sets that they have; later objects share new ones
		}
		i.texts[string(raw)] = raw
	}
}
