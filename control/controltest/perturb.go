package controltest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
)

// fault makes the next writes of a resource fail.
type fault struct {
	verb     string
	resource string
	left     int
}

func (s *player) refuse(args []string) error {
	f := fault{args[0], args[1], 1}
	if len(args) > 2 {
		if _, err := fmt.Sscan(args[2], &f.left); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	return nil
}

// faulty fails the writes that a script wants to fail.
type faulty struct {
	client.Client
	stage *player
}

func (f *faulty) check(verb string, on schema.GroupResource) error {
	f.stage.mu.Lock()
	defer f.stage.mu.Unlock()
	for i := range f.stage.faults {
		if x := &f.stage.faults[i]; x.left > 0 && x.verb == verb && x.resource == on.Resource {
			x.left--
			return apierrors.NewInternalError(fmt.Errorf("the script refuses this"))
		}
	}
	return nil
}

func (f *faulty) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	if err := f.check("create", on); err != nil {
		return nil, err
	}
	return f.Client.Create(ctx, on, obj)
}

func (f *faulty) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if err := f.check("update", on); err != nil {
		return nil, err
	}
	return f.Client.Update(ctx, on, obj, sub)
}

func (f *faulty) Delete(ctx context.Context, on schema.GroupResource, namespace, name string, o metav1.DeleteOptions) error {
	if err := f.check("delete", on); err != nil {
		return err
	}
	return f.Client.Delete(ctx, on, namespace, name, o)
}

// perturbation wraps the clients of controllers.
type perturbation struct {
	name string
	// settleTime is how long after each command the controllers may need to reach the end state.
	settleTime time.Duration
	wrap       func(ctx context.Context, s *player, c client.Client) client.Client
}

// perturbations returns those of the paper on Sieve: stale views, missed events, and crashes between two writes.
func perturbations() []perturbation {
	lag := func(delay time.Duration, skip bool) func(context.Context, *player, client.Client) client.Client {
		return func(ctx context.Context, _ *player, c client.Client) client.Client {
			return &laggingClient{Client: c, ctx: ctx, delay: delay, skip: skip}
		}
	}
	return []perturbation{
		{"stale", 5 * time.Second, lag(100*time.Millisecond, false)},
		{"missed", 5 * time.Second, lag(100*time.Millisecond, true)},
		{"crash", 2 * time.Second, func(_ context.Context, s *player, c client.Client) client.Client {
			return &crashing{Client: c, stage: s}
		}},
	}
}

// crashing stops the controllers after each of their writes, which succeeds.
type crashing struct {
	client.Client
	stage *player
}

func (c *crashing) crash(on schema.GroupResource) error {
	if on.Resource == "events" {
		return nil
	}
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	c.stage.crash()
	return context.Canceled
}

func (c *crashing) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	out, err := c.Client.Create(ctx, on, obj)
	if err == nil {
		err = c.crash(on)
	}
	return out, err
}

func (c *crashing) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	out, err := c.Client.Update(ctx, on, obj, sub)
	if err == nil {
		err = c.crash(on)
	}
	return out, err
}

func (c *crashing) Delete(ctx context.Context, on schema.GroupResource, namespace, name string, o metav1.DeleteOptions) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := c.Client.Delete(ctx, on, namespace, name, o)
	if err == nil {
		err = c.crash(on)
	}
	return err
}

// laggingClient is a client whose views lag behind by a delay, and with skip show only the last state of each object in that time.
type laggingClient struct {
	client.Client
	ctx   context.Context // ends when the controllers are stopped
	delay time.Duration
	skip  bool
}

func (l *laggingClient) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	v, err := l.Client.View(ctx, on)
	if err != nil {
		return nil, err
	}
	out := &laggingView{inner: v, objects: map[string]kind.Object{}, moved: make(chan struct{})}
	for o := range v.List("") {
		out.objects[key(o)] = o
	}
	feed := make(chan client.Event, 1<<16)
	go func() {
		for ev := range v.Events(l.ctx) {
			feed <- ev
		}
		close(feed)
	}()
	go out.applyInRounds(l.ctx, feed, l.delay, l.skip)
	return out, nil
}

func key(o kind.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// laggingView is a view that lags behind another one.
type laggingView struct {
	inner client.View

	mu      sync.Mutex // guards what follows
	objects map[string]kind.Object
	events  []client.Event
	rev     int64
	moved   chan struct{}
}

// applyInRounds applies the events of the other view in rounds.
func (b *laggingView) applyInRounds(ctx context.Context, feed <-chan client.Event, delay time.Duration, skip bool) {
	for {
		var round []client.Event
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-feed:
			if !ok {
				return
			}
			round = append(round, ev)
		}
		if wait.Sleep(ctx, delay) != nil {
			return
		}
		for len(feed) > 0 {
			if ev, ok := <-feed; ok {
				round = append(round, ev)
			}
		}
		b.apply(round, skip)
	}
}

func (b *laggingView) apply(round []client.Event, skip bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := map[string]int{}
	for i, ev := range round {
		if !ev.Gap {
			last[key(ev.Object)] = i
		}
	}
	for i, ev := range round {
		b.rev = max(b.rev, ev.Rev)
		if ev.Gap || skip && last[key(ev.Object)] != i {
			continue
		}
		k := key(ev.Object)
		old, had := b.objects[k]
		if ev.Old = old; !had {
			ev.Old = nil
		}
		if ev.Deleted {
			delete(b.objects, k)
			if !had {
				continue
			}
		} else {
			b.objects[k] = ev.Object
		}
		b.events = append(b.events, ev)
	}
	close(b.moved)
	b.moved = make(chan struct{})
}

func (b *laggingView) Get(namespace, name string) (kind.Object, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, found := b.objects[namespace+"/"+name]
	return o, found
}

func (b *laggingView) sorted(keep func(kind.Object) bool) iter.Seq[kind.Object] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []kind.Object
	for _, o := range b.objects {
		if keep(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(x, y kind.Object) int {
		if key(x) < key(y) {
			return -1
		}
		return 1
	})
	return slices.Values(out)
}

func (b *laggingView) List(namespace string) iter.Seq[kind.Object] {
	return b.sorted(func(o kind.Object) bool { return namespace == "" || o.GetNamespace() == namespace })
}

func (b *laggingView) By(index client.Index, value string) iter.Seq[kind.Object] {
	return b.sorted(func(o kind.Object) bool { return slices.Contains(index.Values(o), value) })
}

// Events yields the objects that the view has, and then the events that are applied to it.
func (b *laggingView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		b.mu.Lock()
		at := len(b.events)
		b.mu.Unlock()
		for o := range b.List("") {
			if !yield(client.Event{Object: o}) {
				return
			}
		}
		for {
			b.mu.Lock()
			next, moved := b.events[at:], b.moved
			at = len(b.events)
			b.mu.Unlock()
			for _, ev := range next {
				if !yield(ev) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-moved:
			}
		}
	}
}

// Unreadable returns the keys that the other view cannot decode.
func (b *laggingView) Unreadable(namespace string) []string { return b.inner.Unreadable(namespace) }

// Reach waits until the view has a revision.
func (b *laggingView) Reach(ctx context.Context, rev int64) error {
	if rev == 0 {
		if err := b.inner.Reach(ctx, 0); err != nil {
			return err
		}
		time.Sleep(time.Second) // longer than any delay
		return ctx.Err()
	}
	for {
		b.mu.Lock()
		have, moved := b.rev, b.moved
		b.mu.Unlock()
		if have >= rev {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-time.After(10 * time.Second): // the revision belongs to another resource
			return nil
		}
	}
}
