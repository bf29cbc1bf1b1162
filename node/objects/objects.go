// Package objects provides the API objects that the Pods of this node refer to: ConfigMaps, Secrets, trust bundles, and
// the tokens of their service accounts. An object is watched when the first Pod needs it, shared by all Pods that refer
// to it, and dropped with the last of them; the users are told of every change.
//
// A node may read no more than that, so there is one small view for each object and none of all of them. All parts of
// the agent that need such an object for a Pod (volumes, environments, pull secrets) get it here, and Drop is called
// when the Pod has ended.
package objects

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// maxObjects is the number of objects that one Pod may refer to: each is watched, and held in memory, while the Pod is here.
const maxObjects = 256

// Refs holds the objects. Its methods may be called concurrently.
type Refs struct {
	client client.Client
	log    *slog.Logger
	tokens tokens
	seed   uint64

	running sync.WaitGroup // the entries that are followed

	// mu guards what is below.
	mu        sync.Mutex
	closed    bool
	entries   map[key]*entry
	held      map[types.UID]int // the number of entries of a Pod
	listeners []func(types.UID)
}

// key names an object; one without a name stands for all objects of the resource.
type key struct {
	on              schema.GroupResource
	namespace, name string
}

// missing returns the error for an object that does not exist, with the text of Kubernetes: secret "x" not found.
func (k key) missing() error {
	return apierrors.NewNotFound(schema.GroupResource{Group: k.on.Group, Resource: strings.TrimSuffix(k.on.Resource, "s")}, k.name)
}

// New makes an empty Refs that reads through a client.
func New(c client.Client, log *slog.Logger) *Refs {
	return &Refs{client: c, log: log, tokens: tokens{client: c, log: log, held: map[string]*heldToken{}}, seed: seed(),
		entries: map[key]*entry{}, held: map[types.UID]int{}}
}

// OnChange registers a function that is called with the UID of every Pod for which an object was created, changed or
// deleted. The function must not block.
func (r *Refs) OnChange(f func(types.UID)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, f)
}

// ConfigMap returns a ConfigMap that a Pod refers to. It is shared and must not be changed.
func (r *Refs) ConfigMap(ctx context.Context, p *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	return get[*corev1.ConfigMap](ctx, r, p.UID, key{gr.ConfigMaps, p.Namespace, name})
}

// Secret returns a Secret that a Pod refers to. It is shared and must not be changed.
func (r *Refs) Secret(ctx context.Context, p *corev1.Pod, name string) (*corev1.Secret, error) {
	return get[*corev1.Secret](ctx, r, p.UID, key{gr.Secrets, p.Namespace, name})
}

// SecretOf returns a Secret that a volume of the Pod refers to, which may be in another namespace.
func (r *Refs) SecretOf(ctx context.Context, uid types.UID, namespace, name string) (*corev1.Secret, error) {
	return get[*corev1.Secret](ctx, r, uid, key{gr.Secrets, namespace, name})
}

// Drop drops the objects of a Pod.
func (r *Refs) Drop(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, e := range r.entries {
		if delete(e.users, uid); len(e.users) == 0 {
			e.stop()
			delete(r.entries, k)
		}
	}
	delete(r.held, uid)
	r.tokens.drop(uid)
}

// Close drops everything, and waits until nothing is followed any more.
func (r *Refs) Close() {
	r.mu.Lock()
	r.closed = true
	for k, e := range r.entries {
		e.stop()
		delete(r.entries, k)
	}
	r.mu.Unlock()
	r.running.Wait()
}

// acquire records that a Pod uses an object, and reports whether that is new. It is an error if the Pod uses too many.
func (r *Refs) acquire(ctx context.Context, uid types.UID, k key) (e *entry, isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = r.entries[k]
	if isNew = e == nil || !e.users[uid]; isNew && r.held[uid] >= maxObjects {
		return nil, false, fmt.Errorf("the Pod refers to more than %d ConfigMaps and Secrets: put their keys into fewer objects", maxObjects)
	}
	if e == nil {
		// The entry lives until its last Pod has ended, not until the caller's context ends.
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		e = &entry{key: k, users: map[types.UID]bool{}, stop: stop, opened: make(chan struct{})}
		if r.closed {
			stop()
		}
		r.entries[k] = e
		r.running.Go(func() { r.follow(own, e) })
	}
	if isNew {
		e.users[uid] = true
		r.held[uid]++
	}
	return e, isNew, nil
}

// forget removes an entry, so that the next caller opens it again.
func (r *Refs) forget(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.stop()
	if r.entries[e.key] == e {
		delete(r.entries, e.key)
		for uid := range e.users {
			r.held[uid]--
		}
	}
}

// notify calls the OnChange functions for every Pod that uses an entry.
func (r *Refs) notify(e *entry) {
	r.mu.Lock()
	users := make([]types.UID, 0, len(e.users))
	for uid := range e.users {
		users = append(users, uid)
	}
	listeners := r.listeners
	r.mu.Unlock()
	for _, f := range listeners {
		for _, uid := range users {
			f(uid)
		}
	}
}

// get returns an object at least as new as the Pod that refers to it: a Secret that was created before the Pod is
// found.
func get[T kind.Object](ctx context.Context, r *Refs, uid types.UID, k key) (T, error) {
	var none T
	e, isNew, err := r.acquire(ctx, uid, k)
	if err != nil {
		return none, err
	}
	o, err := r.object(ctx, uid, e, isNew)
	if err != nil {
		return none, err
	}
	found, ok := o.(T)
	if !ok {
		return none, k.missing()
	}
	return found, nil
}

func (r *Refs) object(ctx context.Context, uid types.UID, e *entry, isNew bool) (kind.Object, error) {
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	if fixed := e.immutable(); fixed != nil {
		if !isNew {
			return fixed, nil
		}
		// It is not watched, so it must be read to know whether it is still the object that the new Pod refers to.
		now, err := r.client.Get(ctx, e.on, e.namespace, e.name, "")
		if err == nil && now.GetUID() == fixed.GetUID() {
			return now, nil
		}
		r.forget(e)
		if apierrors.IsNotFound(err) {
			return nil, e.missing()
		}
		if err != nil {
			return nil, err
		}
		if e, _, err = r.acquire(ctx, uid, e.key); err != nil {
			return nil, err
		}
		return r.object(ctx, uid, e, true)
	}
	o, found := e.view.Get(e.namespace, e.name)
	if isNew || !found {
		if err := e.view.Reach(ctx, 0); err != nil {
			return nil, err
		}
		o, found = e.view.Get(e.namespace, e.name)
	}
	if !found {
		return nil, e.missing()
	}
	return o, nil
}
