package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

// unreadable is a stored object that cannot be decoded.
type unreadable struct {
	err error
	// last is its last state that could be, nil if there is none. Watchers that have seen it are told of the object's next state that can
	// be decoded, or of its end, as if nothing had been between.
	last *Entry
}

// lose takes an object out of the cache that cannot be decoded any more. Nobody is told that it is gone, because it is not.
func (c *Cache) lose(ev *Event) {
	u := &unreadable{err: ev.unreadable}
	before := c.unreadable[ev.Now.Key]
	if old, had := c.tree.Delete(ev.Now); had {
		u.last = old
		for _, l := range c.lookups {
			l.drop(old)
		}
	} else if before != nil {
		u.last = before.last
	}
	c.logUnreadable(u.err, before)
	if c.unreadable == nil {
		c.unreadable = map[string]*unreadable{}
	}
	c.unreadable[ev.Now.Key] = u
}

// found forgets that an object could not be decoded, because it has a new state or is gone, and returns the last state that watchers have
// seen of it. When that is not known, because it could not be decoded since the cache was loaded, they may have seen one elsewhere, or before a
// restart: then all watchers are ended, and begin anew.
func (c *Cache) found(key string, rev int64) *Entry {
	u := c.unreadable[key]
	if u == nil {
		return nil
	}
	delete(c.unreadable, key)
	c.Log.Info("a stored object that could not be decoded was written or deleted", "key", key)
	if u.last == nil {
		c.history = history{floor: rev}
		c.watchers.endAll(ErrReloaded)
	}
	return u.last
}

// logUnreadable says once of an object that it cannot be decoded.
func (c *Cache) logUnreadable(err error, before *unreadable) {
	if before == nil || before.err.Error() != err.Error() {
		c.Log.Error("a stored object cannot be decoded; everything else is served", "prefix", c.Prefix, "err", err)
	}
}

// Unreadable returns the error of a stored object that cannot be decoded; nil if there is no such object under the key.
func (c *Cache) Unreadable(key string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if u := c.unreadable[key]; u != nil {
		return u.err
	}
	return nil
}

// UnreadableKeys returns the keys under a prefix whose objects cannot be decoded, in order.
func (c *Cache) UnreadableKeys(prefix string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.unreadable) == 0 {
		return nil
	}
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(c.unreadable)), func(k string) bool { return !strings.HasPrefix(k, prefix) })
	slices.Sort(keys)
	return keys
}

// Retry decodes again what could not be decoded under a prefix, and returns the first error. It is for objects whose decoding needs somebody
// else, who may be back. Watchers that have not seen such an object in any state are ended, and begin again.
func (c *Cache) Retry(ctx context.Context, prefix string) error {
	for _, key := range c.UnreadableKeys(prefix) {
		c.mu.RLock()
		u := c.unreadable[key]
		c.mu.RUnlock()
		p, found, err := c.Source.Get(ctx, key)
		if err != nil {
			return err
		}
		if u == nil || !found { // an event tells what became of it, or has told
			continue
		}
		e, err := c.entry(p)
		if err != nil {
			return err
		}
		c.recover(key, u, e)
	}
	return nil
}

// recover puts an object into the cache that can be decoded now. If there was a change in between, that counts.
func (c *Cache) recover(key string, u *unreadable, e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unreadable[key] != u || e.Rev > c.rev.Load() {
		return
	}
	delete(c.unreadable, key)
	c.tree.ReplaceOrInsert(e)
	for _, l := range c.lookups {
		l.put(e)
	}
	c.changes.Add(1)
	c.history = history{floor: c.rev.Load()}
	c.watchers.endAll(ErrReloaded)
}

// errReread ends the filling of a cache that shall be loaded again.
var errReread = errors.New("the stored objects are read again")

// Reread loads a cache again that has objects which could not be decoded, because now they may be: there are other keys. Watchers are ended
// and begin again.
func (c *Cache) Reread() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unreadable) > 0 {
		c.reload()
	}
}

// Reload loads a cache again because its objects are decoded in another way now. Watchers are ended and begin again.
func (c *Cache) Reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload()
}

func (c *Cache) reload() {
	if c.stopFill == nil {
		return // what is decoded is decoded in the new way
	}
	c.reread.Store(true)
	c.stopFill(errReread)
}
