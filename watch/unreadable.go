package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"proa.dev/kv"
)

// unreadable is a stored object that cannot be decoded.
type unreadable struct {
	err error
	// last is its last state that could be decoded; nil if there is none. When the object can be decoded again or is
	// deleted, watchers get an event with this as the previous state.
	last *Entry
}

// removeUnreadable removes an object from the cache that can no longer be decoded. Watchers get no event, because the
// object still exists.
func (c *Cache) removeUnreadable(ev *Event) {
	u := &unreadable{err: ev.unreadable}
	before := c.unreadable[ev.Now.Key]
	if old, had := c.tree.Delete(ev.Now); had {
		u.last = old
		c.account(old, -1)
		for _, l := range c.indexes {
			l.remove(old)
		}
	} else if before != nil {
		u.last = before.last
	}
	c.logUnreadable(u.err, before)
	if c.unreadable == nil {
		c.unreadable = map[string]*unreadable{}
	}
	c.unreadable[ev.Now.Key] = u
	c.changes.Add(1)
}

// forgetUnreadable removes an object from the unreadable ones, because it was written or deleted, and returns the last
// state that watchers have seen of it. If there is none, because the object was unreadable when the cache was loaded,
// watchers may have seen a state on another server or before a restart; then all watchers are ended and have to list
// again.
func (c *Cache) forgetUnreadable(key string, rev int64) *Entry {
	u := c.unreadable[key]
	if u == nil {
		return nil
	}
	delete(c.unreadable, key)
	c.changes.Add(1)
	c.Log.Info("a stored object that could not be decoded was written or deleted", "key", key)
	if u.last == nil {
		c.history = history{floor: rev}
		c.watchers.endAll(ErrReloaded)
	}
	return u.last
}

// logUnreadable logs that an object cannot be decoded, unless that was logged before.
func (c *Cache) logUnreadable(err error, before *unreadable) {
	if before == nil || before.err.Error() != err.Error() {
		c.Log.Error("a stored object cannot be decoded; everything else is served", "prefix", c.Prefix, "err", err)
	}
}

// Unreadable returns why the object under a key cannot be decoded; nil if it can, or does not exist.
func (c *Cache) Unreadable(key string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if u := c.unreadable[key]; u != nil {
		return u.err
	}
	return nil
}

// UnreadableKeys returns the keys under a prefix whose objects cannot be decoded, in order. A prefix that does not end with a slash
// is the key of one object.
func (c *Cache) UnreadableKeys(prefix string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.unreadable) == 0 {
		return nil
	}
	exact := prefix != "" && !strings.HasSuffix(prefix, "/")
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(c.unreadable)), func(k string) bool {
		return !strings.HasPrefix(k, prefix) || exact && k != prefix
	})
	slices.Sort(keys)
	return keys
}

// Retry tries to decode the unreadable objects with a prefix again, and returns the first error. It is for objects
// whose decoding needs another service, such as a conversion webhook, which may work again. Watchers are ended and have
// to list again.
//
// The first object is decoded alone: while the service does not work, a retry costs it one request.
func (c *Cache) Retry(ctx context.Context, prefix string) error {
	keys := c.UnreadableKeys(prefix)
	for n := 1; len(keys) > 0; n = maxApplied {
		done, err := c.retryKeys(ctx, keys[:min(n, len(keys))])
		if err != nil {
			return err
		}
		keys = keys[done:]
	}
	return nil
}

// maxRetried bounds the bytes of stored objects that are decoded again at once.
const maxRetried = 8 << 20

// retryKeys decodes the objects with the first of these keys again, and returns how many and the first error.
func (c *Cache) retryKeys(ctx context.Context, keys []string) (done int, first error) {
	var pairs []kv.Pair
	var before []*unreadable
	for size := 0; done < len(keys) && size < maxRetried; done++ {
		key := keys[done]
		c.mu.RLock()
		u := c.unreadable[key]
		c.mu.RUnlock()
		p, found, err := c.Source.Get(ctx, key)
		if err != nil {
			return done, err
		}
		if u != nil && found { // otherwise it was written or deleted meanwhile; the watch delivers that
			pairs, before = append(pairs, p), append(before, u)
			size += len(p.Value)
		}
	}
	for i, d := range c.entries(ctx, pairs) {
		if d.err == nil {
			c.addReadable(pairs[i].Key, before[i], d.entry)
		} else if first == nil {
			first = d.err
		}
	}
	return done, first
}

// addReadable adds an object to the cache that can be decoded now, unless it was changed meanwhile.
func (c *Cache) addReadable(key string, u *unreadable, e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unreadable[key] != u || e.Rev > c.rev.Load() {
		return
	}
	delete(c.unreadable, key)
	c.tree.ReplaceOrInsert(e)
	for _, l := range c.indexes {
		l.add(e)
	}
	c.changes.Add(1)
	c.history = history{floor: c.rev.Load()}
	c.reloads++
	c.watchers.endAll(ErrReloaded)
}

// errReread ends the watch of a cache that is to be loaded again.
var errReread = errors.New("the stored objects are read again")

// Reread loads the cache again if it has unreadable objects. It is called when the encryption keys have changed, so
// that these objects may be readable now. Watchers are ended and have to list again.
func (c *Cache) Reread() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rereads.Add(1)
	if len(c.unreadable) > 0 {
		c.reload()
	}
}

// rereadIfMissed loads the cache again if Reread was called while objects were decoded that are unreadable now. rereads
// is the number of its calls before they were decoded. The caller holds the lock.
func (c *Cache) rereadIfMissed(rereads int64) {
	if len(c.unreadable) > 0 && c.rereads.Load() != rereads {
		c.reload()
	}
}

// Reload loads the cache again because its objects are decoded differently now. Watchers are ended and have to list
// again.
func (c *Cache) Reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload()
}

func (c *Cache) reload() {
	if c.stopFill == nil {
		return // nothing has been loaded yet
	}
	c.reloadPending.Store(true)
	c.stopFill(errReread)
}
