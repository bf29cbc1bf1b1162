package computed

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/kind"
	"proa.dev/server/collection"
	"proa.dev/watch"
)

const (
	// interval is how often objects are computed for a watch at most, and pauseFactor how many times as long as a computation takes the
	// watch waits for the next one at least.
	interval, pauseFactor = time.Second / 2, 10
	// maxUnchecked is how long a watch goes on without being computed, when nothing says that it would show something else. The rights of
	// its user are looked at each time.
	maxUnchecked = 10 * time.Second
	// computeTimeout bounds one computation: a watch has no other bound, and all others wait meanwhile.
	computeTimeout = 10 * time.Second
)

// Watcher finds out what changes of objects that are computed. Its methods must be called by one goroutine only.
type Watcher struct {
	reader *Reader
	query  *Query
	leave  func()
	user   identity

	has     contents // what the client has, with what is queued
	queue   []watch.Item
	next    time.Time // when the objects are computed again
	checked time.Time // when they were computed last
	version uint64    // of the kind, at that time
	rev     int64     // the resourceVersion of what the client has
}

// Watch starts a watch. If it starts with the present objects, it returns them and their resourceVersion; otherwise it goes on from the
// resourceVersion of the options, if the server still knows what the user had got then. If the field selector names one object, that is
// computed as a get does it.
func (c *Reader) Watch(ctx context.Context, q *Query, o *collection.Options) (*Watcher, []*watch.Entry, int64, error) {
	if q.Namespace != "" || q.Def.Scope == kind.Cluster {
		q.Name = o.ExactField("metadata.name")
	}
	w := &Watcher{reader: c, query: q, user: identityOf(q.Server.User())}
	var had contents
	isResumed := o.ResourceVersion != "" && o.ResourceVersion != "0" && (o.Initial == nil || !*o.Initial)
	if isResumed {
		rev, err := strconv.ParseUint(o.ResourceVersion, 10, 63)
		if err != nil {
			return nil, nil, 0, collection.InvalidVersion(o.ResourceVersion, err)
		}
		known := false
		if had, known = c.recall(w.user, int64(rev)); !known {
			return nil, nil, 0, apierrors.NewResourceExpired("too old resource version: " + o.ResourceVersion)
		}
		w.rev = int64(rev)
	}
	leave, err := c.enter(q.Server.User().GetName())
	if err != nil {
		return nil, nil, 0, err
	}
	objects, err := w.compute(ctx)
	if err != nil {
		leave()
		return nil, nil, 0, err
	}
	w.leave = leave
	if isResumed {
		w.has = had
		w.compare(objects)
		return w, nil, w.rev, nil
	}
	w.has = contentsOf(objects)
	w.rev = c.remember(w.user, w.has)
	setVersion(objects, w.rev)
	if o.Initial != nil && !*o.Initial {
		objects = nil
	}
	return w, entriesOf(objects), w.rev, nil
}

// compute computes the objects and plans when that is done again. An object that does not exist is none.
func (w *Watcher) compute(ctx context.Context) (objects []kind.Object, err error) {
	version := w.kindVersion()
	took, turnErr := w.reader.turn.pass(ctx, func() {
		ctx, stop := context.WithTimeout(ctx, computeTimeout)
		defer stop()
		objects, err = w.query.read(ctx)
	})
	if turnErr != nil {
		return nil, turnErr
	}
	w.next = time.Now().Add(max(interval, pauseFactor*took))
	if apierrors.IsNotFound(err) && w.query.Name != "" {
		objects, err = nil, nil
	}
	if err == nil {
		w.checked, w.version = time.Now(), version
	}
	return objects, err
}

// kindVersion returns what the kind says to be the version of its objects; 0 if it says nothing.
func (w *Watcher) kindVersion() uint64 {
	if w.query.Def.ComputedVersion == nil {
		return 0
	}
	return w.query.Def.ComputedVersion()
}

// compare queues an event for each difference between the present objects and those that the client has.
func (w *Watcher) compare(objects []kind.Object) {
	now := contentsOf(objects)
	var changed []kind.Object
	var types []watch.Type
	for _, o := range objects {
		id := name{o.GetNamespace(), o.GetName()}
		switch had, known := w.has[id]; {
		case !known:
			changed, types = append(changed, o), append(types, watch.Added)
		case had != now[id]:
			changed, types = append(changed, o), append(types, watch.Modified)
		}
	}
	var gone []name
	for id := range w.has {
		if _, known := now[id]; !known {
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, func(a, b name) int { return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name)) })
	for _, id := range gone { // what was in it is not known any more
		o := w.query.Def.New()
		o.GetObjectKind().SetGroupVersionKind(w.query.Def.GroupVersionKind)
		o.SetNamespace(id.namespace)
		o.SetName(id.name)
		changed, types = append(changed, o), append(types, watch.Deleted)
	}
	if len(changed) == 0 {
		return
	}
	w.has = now
	w.rev = w.reader.remember(w.user, now)
	setVersion(changed, w.rev)
	for i, o := range changed {
		w.queue = append(w.queue, watch.Item{As: types[i], Event: &watch.Event{Type: types[i], Now: watch.NewEntry("", o, 0)}})
	}
}

// Next returns events. If there are none, it blocks until something has changed, until idle fires (then it returns none), or until the
// watch ends: with ctx, or with an error when the user may not watch any more. It reuses buf.
func (w *Watcher) Next(ctx context.Context, idle <-chan time.Time, buf []watch.Item) ([]watch.Item, error) {
	for {
		if len(w.queue) > 0 {
			items := append(buf[:0], w.queue...)
			w.queue = nil
			return items, nil
		}
		again := time.NewTimer(time.Until(w.next))
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-idle:
			again.Stop()
			return nil, nil
		case <-again.C:
		}
		if err := w.refresh(ctx); err != nil {
			return nil, err
		}
	}
}

// refresh looks at the rights of the user, and computes the objects if they may have changed.
func (w *Watcher) refresh(ctx context.Context) error {
	if err := w.query.Authorize(ctx); err != nil {
		return err
	}
	if version := w.kindVersion(); version != 0 && version == w.version && time.Since(w.checked) < maxUnchecked {
		w.next = time.Now().Add(interval)
		return nil
	}
	objects, err := w.compute(ctx)
	switch {
	case err == nil:
		w.compare(objects)
	case ctx.Err() != nil || !isPassing(err):
		return err
	}
	return nil
}

// DeliveredUpTo returns the resourceVersion of what the client has, and false while events are queued. A bookmark may have it.
func (w *Watcher) DeliveredUpTo() (int64, bool) {
	if len(w.queue) > 0 {
		return 0, false
	}
	w.rev = w.reader.remember(w.user, w.has)
	return w.rev, true
}

// Close ends the watch.
func (w *Watcher) Close() { w.leave() }
