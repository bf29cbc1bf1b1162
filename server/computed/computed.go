// Package computed serves kinds whose objects are computed when they are asked for, and not stored: traces and metrics. A kind with the
// verb watch is computed again and again while somebody watches it; this package finds out what has changed, and bounds what that costs.
package computed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
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
	watches  map[string]int // how many each client has
	total    int            // how many there are
	points   map[identity][]resumePoint
	lastRev  int64
	lastUser []identity // the users with resume points, the one first whose last is the oldest

	turn turnstile
}

// Get computes the object that a query names, and returns false if there is none. It has no resourceVersion: a watch goes on from that of
// a list or of another watch.
func (q *Query) Get(ctx context.Context) (kind.Object, bool, error) {
	objects, err := q.read(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, o := range objects {
		if o.GetName() == q.Name && o.GetNamespace() == q.Namespace {
			if q.Def.Serves("watch") {
				o.SetResourceVersion("")
			}
			return o, true, nil
		}
	}
	return nil, false, nil
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
type identity struct{ client, all string }

func identityOf(u user.Info) identity {
	client := hop.ClientKey(u.GetName())
	text, err := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	if err != nil {
		return identity{client, u.GetName()}
	}
	return identity{client, string(text)}
}

// resumePoint is what a client had at a resourceVersion.
type resumePoint struct {
	rev int64
	had contents
}

// The bounds of what is remembered: points of each user, users, and how many of these are one client with other groups or tokens.
const maxPoints, maxUsers, maxUsersOfClient = 32, 64, 8

// remember returns a resourceVersion for what a user has got. The versions grow, also over a restart.
func (c *Reader) remember(who identity, had contents) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastRev = max(c.lastRev+1, time.Now().UnixMicro())
	if c.points == nil {
		c.points = map[identity][]resumePoint{}
	}
	c.lastUser = append(slices.DeleteFunc(c.lastUser, func(u identity) bool { return u == who }), who)
	if i := tooManyUsers(c.lastUser, who.client); i >= 0 {
		delete(c.points, c.lastUser[i])
		c.lastUser = slices.Delete(c.lastUser, i, i+1)
	}
	own := append(c.points[who], resumePoint{c.lastRev, had})
	if len(own) > maxPoints {
		own = append([]resumePoint(nil), own[len(own)-maxPoints:]...)
	}
	c.points[who] = own
	return c.lastRev
}

// tooManyUsers returns the index of the user whose points make room, if there are too many of one client or of all; otherwise -1.
func tooManyUsers(users []identity, client string) int {
	isOfClient := func(u identity) bool { return u.client == client }
	count := 0
	for _, u := range users {
		if isOfClient(u) {
			count++
		}
	}
	switch {
	case count > maxUsersOfClient:
		return slices.IndexFunc(users, isOfClient)
	case len(users) > maxUsers:
		return 0
	}
	return -1
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

// The bounds of watches: of all clients, and of one.
const maxWatches, maxWatchesOfClient = 64, 8

// mayHave returns how many watches one client may have when so many are free. The fewer are free, the fewer it is, and the last ones are
// for clients who have none: it takes more than 20 clients to use up all.
func mayHave(free int) int { return min(max(free/6, 1), maxWatchesOfClient) }

// enter counts a watch of a user; the caller calls leave when it has ended.
func (c *Reader) enter(userName string) (leave func(), err error) {
	who := hop.ClientKey(userName)
	c.mu.Lock()
	defer c.mu.Unlock()
	free, own := maxWatches-c.total, c.watches[who]
	switch most := mayHave(free); {
	case free == 0:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("all %d watches of objects that are computed, such as traces, are taken; "+
			"list them instead, or try again later", maxWatches), 10)
	case own >= most:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%q has %d watches of objects that are computed, such as traces, and may have %d "+
			"while %d of %d are taken; end one of them, list the objects instead, or try again later", who, own, most, c.total, maxWatches), 10)
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
