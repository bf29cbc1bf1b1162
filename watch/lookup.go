package watch

import (
	"cmp"
	"slices"

	"proa.dev/kinds/kind"
)

// objectIndex is an index of entries by a value of their objects. The lock of the cache guards it.
type objectIndex struct {
	of      func(kind.Object) []string
	entries map[string]map[string]*Entry // by value, then by key
}

func (l *objectIndex) add(e *Entry) {
	for _, v := range l.of(e.Outline()) {
		m := l.entries[v]
		if m == nil {
			m = map[string]*Entry{}
			l.entries[v] = m
		}
		m[e.Key] = e
	}
}

// remove removes an entry from the index.
func (l *objectIndex) remove(e *Entry) {
	for _, v := range l.of(e.Outline()) {
		m := l.entries[v]
		if delete(m, e.Key); len(m) == 0 {
			delete(l.entries, v)
		}
	}
}

// By returns the entries that have a value in the named index, in the order of their keys. The first call for a name
// builds the index.
func (c *Cache) By(name string, of func(kind.Object) []string, value string) []*Entry {
	c.mu.RLock()
	l := c.indexes[name]
	if l == nil {
		c.mu.RUnlock()
		c.addIndex(name, of)
		c.mu.RLock()
		l = c.indexes[name]
	}
	m := l.entries[value]
	out := make([]*Entry, 0, len(m))
	for _, e := range m {
		out = append(out, e)
	}
	c.mu.RUnlock()
	slices.SortFunc(out, func(a, b *Entry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func (c *Cache) addIndex(name string, of func(kind.Object) []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.indexes[name] != nil {
		return
	}
	if c.indexes == nil {
		c.indexes = map[string]*objectIndex{}
	}
	l := &objectIndex{of: of}
	c.indexes[name] = l
	c.rebuildIndex(l)
}

// rebuildIndex rebuilds an index from the tree.
func (c *Cache) rebuildIndex(l *objectIndex) {
	l.entries = map[string]map[string]*Entry{}
	c.tree.Ascend(func(e *Entry) bool {
		l.add(e)
		return true
	})
}
