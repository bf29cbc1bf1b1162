package watch

import (
	"cmp"
	"slices"

	"proa.dev/kinds/kind"
)

// lookup finds entries by a value of their object. The cache's lock guards it.
type lookup struct {
	of      func(kind.Object) []string
	entries map[string]map[string]*Entry // by value, then by key
}

func (l *lookup) put(e *Entry) {
	for _, v := range l.of(e.Outline()) {
		m := l.entries[v]
		if m == nil {
			m = map[string]*Entry{}
			l.entries[v] = m
		}
		m[e.Key] = e
	}
}

// drop forgets an entry under the values it had.
func (l *lookup) drop(e *Entry) {
	for _, v := range l.of(e.Outline()) {
		m := l.entries[v]
		if delete(m, e.Key); len(m) == 0 {
			delete(l.entries, v)
		}
	}
}

// By returns the entries that have a value in the named index, in key order. The first use makes the index.
func (c *Cache) By(name string, of func(kind.Object) []string, value string) []*Entry {
	c.mu.RLock()
	l := c.lookups[name]
	if l == nil {
		c.mu.RUnlock()
		c.addLookup(name, of)
		c.mu.RLock()
		l = c.lookups[name]
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

func (c *Cache) addLookup(name string, of func(kind.Object) []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lookups[name] != nil {
		return
	}
	if c.lookups == nil {
		c.lookups = map[string]*lookup{}
	}
	l := &lookup{of: of}
	c.lookups[name] = l
	c.refill(l)
}

// refill makes an index from the whole tree.
func (c *Cache) refill(l *lookup) {
	l.entries = map[string]map[string]*Entry{}
	c.tree.Ascend(func(e *Entry) bool {
		l.put(e)
		return true
	})
}
