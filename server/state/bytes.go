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
	mu    sync.Mutex // guards what follows
	bytes map[string]int64
}

func (n *namespaceBytes) add(namespace string, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bytes == nil {
		n.bytes = map[string]int64{}
	}
	if n.bytes[namespace] += bytes; n.bytes[namespace] == 0 {
		delete(n.bytes, namespace)
	}
}

// account returns the function by which the cache of a resource tells what its namespaces have; nil for one without namespaces.
func (s *State) account(def *kind.Def) func(key string, bytes, objects int) {
	if def.Scope != kind.Namespaced {
		return nil
	}
	prefix := def.Prefix()
	return func(key string, bytes, objects int) {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		s.bytes.add(namespace, int64(bytes+objects*ObjectOverhead))
	}
}

// NamespaceBytes returns the bytes that the objects of a namespace have in the store, with ObjectOverhead for each. It counts the
// resources whose caches have been used, which are all of them where the controllers run.
func (s *State) NamespaceBytes(namespace string) int64 {
	s.bytes.mu.Lock()
	defer s.bytes.mu.Unlock()
	return s.bytes.bytes[namespace]
}
