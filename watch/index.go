package watch

import "strings"

// watcherIndex finds the watchers that a change may concern, so that a change does not have to be matched against all
// watchers. The lock of the cache guards it.
type watcherIndex struct {
	byPrefix map[string]*watcherSet // by the selection's prefix or exact key
	byIndex  map[string]*watcherSet // by the selection's index value
	count    int
}

// watcherSet is an unordered set of watchers with insertion and removal in constant time.
type watcherSet struct{ list []*Watcher }

func newIndex() watcherIndex {
	return watcherIndex{byPrefix: map[string]*watcherSet{}, byIndex: map[string]*watcherSet{}}
}

func (x *watcherIndex) add(w *Watcher) {
	m, key := x.place(w)
	s := m[key]
	if s == nil {
		s = &watcherSet{}
		m[key] = s
	}
	w.slot, w.at = s, len(s.list)
	s.list = append(s.list, w)
	x.count++
}

// place returns the map and the key under which a watcher is found.
func (x *watcherIndex) place(w *Watcher) (map[string]*watcherSet, string) {
	if w.sel.Index != "" {
		return x.byIndex, w.sel.Index
	}
	return x.byPrefix, w.sel.Prefix
}

func (x *watcherIndex) remove(w *Watcher) {
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

func (x *watcherIndex) dispatch(ev *Event) {
	if x.count == 0 {
		return
	}
	// A key is found under each of its prefixes that end with a slash (the resource, the namespace), and under itself.
	key := ev.Now.Key
	for i := 1; i < len(key); i++ {
		if n := strings.IndexByte(key[i:], '/'); n >= 0 {
			i += n
			x.byPrefix[key[:i+1]].dispatch(ev)
		} else {
			break
		}
	}
	x.byPrefix[key].dispatch(ev)
	if len(x.byIndex) == 0 {
		return
	}
	x.byIndex[ev.indexValue].dispatch(ev)
	if ev.Prev != nil && ev.previousIndexValue != ev.indexValue {
		x.byIndex[ev.previousIndexValue].dispatch(ev)
	}
}

func (s *watcherSet) dispatch(ev *Event) {
	if s == nil {
		return
	}
	for _, w := range s.list {
		if ev.Rev <= w.after { // the watcher began ahead of the cache and has already seen the event
			continue
		}
		if as := w.sel.typeOf(ev); as != 0 {
			w.push(as, ev)
		}
	}
}

// endAll ends all watchers.
func (x *watcherIndex) endAll(why error) {
	for _, m := range []map[string]*watcherSet{x.byPrefix, x.byIndex} {
		for _, s := range m {
			for _, w := range s.list {
				w.slot = nil
				w.end(why)
			}
		}
	}
	*x = newIndex()
}
