// Package computed serves kinds whose objects are computed when they are asked for, and not stored: traces and metrics. A kind with the
// verb watch is computed again and again while somebody watches it; this package finds out what has changed, and bounds what that costs.
package computed

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// Query says which objects of a kind are wanted.
type Query struct {
	Def *kind.Def
	// Server is the server as the kind sees it, with the user of the request.
	Server kind.Server
	// Namespace and Name select objects; empty for all.
	Namespace, Name string
	// Keep selects by the object itself; nil for all.
	Keep func(kind.Object) bool
	// Authorize returns an error if the user may not make the request any more. Only a watch needs it.
	Authorize func(context.Context) error
}

// read computes the selected objects.
func (q *Query) read(ctx context.Context) ([]kind.Object, error) {
	all, err := q.Def.Computed(ctx, q.Server, kind.Selection{Namespace: q.Namespace, Name: q.Name})
	if err != nil {
		return nil, err
	}
	out := make([]kind.Object, 0, len(all))
	for _, o := range all {
		o.GetObjectKind().SetGroupVersionKind(q.Def.GroupVersionKind)
		if (q.Namespace == "" || o.GetNamespace() == q.Namespace) && (q.Keep == nil || q.Keep(o)) {
			out = append(out, o)
		}
	}
	return out, nil
}

// Reader reads and watches computed objects. The zero value is ready to use.
type Reader struct {
	mu       sync.Mutex     // guards what follows
	watches  map[string]int // how many each user has
	total    int            // how many there are
	points   map[identity][]resumePoint
	lastRev  int64
	lastUser []identity // the users with resume points, the one first whose last is the oldest

	turn turnstile
}

// Read computes the selected objects. Those of a kind that can be watched, and the list of them, have a resourceVersion from which a watch
// can go on; of other kinds it is empty.
func (c *Reader) Read(ctx context.Context, q *Query) (items []*watch.Entry, version string, err error) {
	objects, err := q.read(ctx)
	if err != nil {
		return nil, "", err
	}
	if q.Def.Serves("watch") {
		rev := c.remember(identityOf(q.Server.User()), contentsOf(objects))
		setVersion(objects, rev)
		version = strconv.FormatInt(rev, 10)
	}
	return entriesOf(objects), version, nil
}

func entriesOf(objects []kind.Object) []*watch.Entry {
	out := make([]*watch.Entry, len(objects))
	for i, o := range objects {
		out[i] = watch.NewEntry("", o, 0)
	}
	return out
}

func setVersion(objects []kind.Object, rev int64) {
	for _, o := range objects {
		o.SetResourceVersion(strconv.FormatInt(rev, 10))
	}
}

// name names an object of a kind.
type name struct{ namespace, name string }

// contents are the objects that a client has, each with a hash of what is in it. They are never changed.
type contents map[name]uint64

// contentsOf returns the contents of objects as their kind returns them: their resourceVersion stands for what is in them.
func contentsOf(objects []kind.Object) contents {
	out := make(contents, len(objects))
	for _, o := range objects {
		h := fnv.New64a()
		_, _ = h.Write([]byte(o.GetResourceVersion())) // a hash takes everything
		out[name{o.GetNamespace(), o.GetName()}] = h.Sum64()
	}
	return out
}

// identity is a user with what his rights depend on. One with the same name and other groups has other rights.
type identity string

func identityOf(u user.Info) identity {
	text, err := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	if err != nil {
		return identity(u.GetName())
	}
	return identity(text)
}

// resumePoint is what a client had at a resourceVersion.
type resumePoint struct {
	rev int64
	had contents
}

// The bounds of what is remembered: points of each user, and users.
const maxPoints, maxUsers = 32, 64

// remember returns a resourceVersion for what a user has got. The versions grow, also over a restart.
func (c *Reader) remember(who identity, had contents) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastRev = max(c.lastRev+1, time.Now().UnixMicro())
	if c.points == nil {
		c.points = map[identity][]resumePoint{}
	}
	for i, u := range c.lastUser {
		if u == who {
			c.lastUser = append(c.lastUser[:i], c.lastUser[i+1:]...)
			break
		}
	}
	if c.lastUser = append(c.lastUser, who); len(c.lastUser) > maxUsers {
		delete(c.points, c.lastUser[0])
		c.lastUser = c.lastUser[1:]
	}
	own := append(c.points[who], resumePoint{c.lastRev, had})
	if len(own) > maxPoints {
		own = append([]resumePoint(nil), own[len(own)-maxPoints:]...)
	}
	c.points[who] = own
	return c.lastRev
}

// recall returns what a user had got at a resourceVersion. Each user has versions of his own: those of others would tell him names.
func (c *Reader) recall(who identity, rev int64) (contents, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.points[who] {
		if p.rev == rev {
			return p.had, true
		}
	}
	return nil, false
}

// The bounds of watches: of all users, and of one.
const maxWatches, maxWatchesOfUser = 64, 8

// enter counts a watch of a user; the caller calls leave when it has ended.
func (c *Reader) enter(who string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= maxWatches || c.watches[who] >= maxWatchesOfUser {
		return nil, apierrors.NewTooManyRequests("there are too many watches of objects that are computed", 10)
	}
	if c.watches == nil {
		c.watches = map[string]int{}
	}
	c.total++
	c.watches[who]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.total--
		if c.watches[who]--; c.watches[who] == 0 {
			delete(c.watches, who)
		}
	}), nil
}

// turnstile lets one watch at a time compute, and none for a while after that: all watches together take a part of one processor,
// however many there are. The zero value is ready to use.
type turnstile struct {
	once sync.Once
	free chan struct{} // has a value while nobody computes
}

// restFactor is how many times as long as a computation the pause after it is, and maxRest the longest pause.
const restFactor, maxRest = 3, time.Second

// pass calls f when nobody else computes, and returns how long f took.
func (t *turnstile) pass(ctx context.Context, f func()) (time.Duration, error) {
	t.once.Do(func() {
		t.free = make(chan struct{}, 1)
		t.free <- struct{}{}
	})
	select {
	case <-t.free:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	start := time.Now()
	defer func() {
		time.AfterFunc(min(restFactor*time.Since(start), maxRest), func() { t.free <- struct{}{} })
	}()
	f()
	return time.Since(start), nil
}

// isPassing tells whether an error says that the objects cannot be computed at the moment.
func isPassing(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || errors.Is(err, context.DeadlineExceeded)
}
