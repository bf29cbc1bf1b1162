package state

import (
	"strings"
	"sync"

	"proa.dev/kinds/kind"
)

// ObjectOverhead is what an object counts in the bytes of its namespace beside its size in the store: a small one takes more memory than
// disk.
const ObjectOverhead = 1 << 10

// namespaceBytes counts the bytes of the objects that the caches have, by namespace.
type namespaceBytes struct {
	mu sync.Mutex // guards what follows
	// bytes are those of stored objects, as far as the caches show them, and of writes that are being made.
	bytes map[string]int64
}

func (n *namespaceBytes) add(namespace string, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addLocked(namespace, bytes)
}

// addLocked does what add does, for a caller that holds mu.
func (n *namespaceBytes) addLocked(namespace string, bytes int64) {
	if n.bytes == nil {
		n.bytes = map[string]int64{}
	}
	if n.bytes[namespace] += bytes; n.bytes[namespace] == 0 {
		delete(n.bytes, namespace)
	}
}

// Accounted returns what the bytes of an object count for: its namespace, or its resource if that has no namespaces.
func Accounted(def *kind.Def, namespace string) string {
	if def.Scope != kind.Namespaced {
		return "/" + def.Plural + "." + def.Group // no namespace has such a name
	}
	return namespace
}

// account returns the function by which the cache of a resource tells what its namespaces have.
func (s *State) account(def *kind.Def) func(key string, bytes, objects int) {
	prefix := def.Prefix()
	return func(key string, bytes, objects int) {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		s.bytes.add(Accounted(def, namespace), int64(bytes+objects*ObjectOverhead))
	}
}

// ReserveBytes adds the bytes of a write to those of its namespace, unless they exceed a bound then, and returns what the namespace had
// before: the bytes of its objects in the store, with ObjectOverhead for each, and of the writes in progress. The resources count whose
// caches have been used, which are all of them where the controllers run.
func (s *State) ReserveBytes(namespace string, more, bound int64) (used int64, fits bool) {
	s.bytes.mu.Lock()
	defer s.bytes.mu.Unlock()
	used = s.bytes.bytes[namespace]
	if fits = used+more <= bound; fits {
		s.bytes.addLocked(namespace, more)
	}
	return used, fits
}

// ReleaseBytes undoes ReserveBytes, once the write is made, which the cache counts, or has failed.
func (s *State) ReleaseBytes(namespace string, more int64) { s.bytes.add(namespace, -more) }
