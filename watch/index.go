package watch

import "strings"

// index finds the watchers that a change may concern, so that a write costs what its watchers
// cost. The cache's lock guards it.
type index struct {
	byPrefix map[string]*slot // by the selection's prefix or exact key
	byIndex  map[string]*slot // by the selection's index value
	count    int
}

// slot is a bag of watchers that can be changed in constant time.
type slot struct{ list []*Watcher }

func newIndex() index {
	return index{byPrefix: map[string]*slot{}, byIndex: map[string]*slot{}}
}

func (x *index) add(w *Watcher) {
	m, key := x.place(w)
	s := m[key]
	if s == nil {
		s = &slot{}
		m[key] = s
	}
	w.slot, w.at = s, len(s.list)
	s.list = append(s.list, w)
	x.count++
}

// place is where a watcher stands.
func (x *index) place(w *Watcher) (map[string]*slot, string) {
	if w.sel.Index != "" {
		return x.byIndex, w.sel.Index
	}
	return x.byPrefix, w.sel.Prefix
}

func (x *index) remove(w *Watcher) {
	s := w.slot
	if s == nil {
		return
	}
	last := len(s.list) - 1
	s.list[w.at] = s.list[last]
	s.list[w.at].at = w.at
	s.list[last] = nil
	s.list = s.list[:last]
	w.slot = nil
	x.count--
	if last == 0 {
		m, key := x.place(w)
		delete(m, key)
	}
}

func (x *index) dispatch(ev *Event) {
	if x.count == 0 {
		return
	}
	// A key belongs to as many prefixes as it has path elements: the resource, the namespace, itself.
	key := ev.Now.Key
	for i := 1; i < len(key); i++ {
		if n := strings.IndexByte(key[i:], '/'); n >= 0 {
			i += n
			x.byPrefix[key[:i+1]].offer(ev)
		} else {
			break
		}
	}
	x.byPrefix[key].offer(ev)
	if len(x.byIndex) == 0 {
		return
	}
	x.byIndex[ev.now].offer(ev)
	if ev.Prev != nil && ev.previous != ev.now {
		x.byIndex[ev.previous].offer(ev)
	}
}

func (s *slot) offer(ev *Event) {
	if s == nil {
		return
	}
	for _, w := range s.list {
		if ev.Rev <= w.after { // the watcher began ahead of the cache, and has it
			continue
		}
		if as := w.sel.see(ev); as != 0 {
			w.push(as, ev)
		}
	}
}

// endAll ends all watchers.
func (x *index) endAll(why error) {
	for _, m := range []map[string]*slot{x.byPrefix, x.byIndex} {
		for _, s := range m {
			for _, w := range s.list {
				w.slot = nil
				w.end(why)
			}
		}
	}
	*x = newIndex()
}
