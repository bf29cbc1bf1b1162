// Package objects keeps the objects of the API that the Pods of this node name: ConfigMaps, Secrets, trust bundles, and the
// tokens of their service accounts. An object is opened when the first Pod needs it, shared by all that name it, and dropped
// with the last of them; who asked for it hears of every change.
//
// An agent may see no more than that, so there is one small view for each object and none of all of them. Whoever needs such
// an object for a Pod (volumes, environments, pull secrets) asks here, and Drop is called when the Pod has gone.
package objects

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Refs holds the objects. Its methods may be called at any time, by anybody.
type Refs struct {
	client client.Client
	log    *slog.Logger
	tokens tokens
	seed   uint64

	running sync.WaitGroup // the entries that are followed

	// mu guards what is below.
	mu      sync.Mutex
	closed  bool
	entries map[key]*entry
	heard   []func(types.UID)
}

// key names an object; one without a name stands for all objects of the resource.
type key struct {
	on              schema.GroupResource
	namespace, name string
}

// missing says that an object is not there, in the words that people know from the Events of their Pods: secret "x" not found.
func (k key) missing() error {
	return apierrors.NewNotFound(schema.GroupResource{Group: k.on.Group, Resource: strings.TrimSuffix(k.on.Resource, "s")}, k.name)
}

// New makes an empty one that reads through a client.
func New(c client.Client, log *slog.Logger) *Refs {
	return &Refs{client: c, log: log, tokens: tokens{client: c, log: log, held: map[string]*held{}}, seed: seed(), entries: map[key]*entry{}}
}

// OnChange calls a function with the UID of every Pod that an object was changed, made or deleted for. The function must
// not wait.
func (r *Refs) OnChange(f func(types.UID)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, f)
}

// ConfigMap is one that a Pod names. It is shared: copy before changing.
func (r *Refs) ConfigMap(ctx context.Context, p *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	return get[*corev1.ConfigMap](ctx, r, p.UID, key{gr.ConfigMaps, p.Namespace, name})
}

// Secret is one that a Pod names. It is shared: copy before changing.
func (r *Refs) Secret(ctx context.Context, p *corev1.Pod, name string) (*corev1.Secret, error) {
	return get[*corev1.Secret](ctx, r, p.UID, key{gr.Secrets, p.Namespace, name})
}

// SecretOf is a Secret that a volume of the Pod names, which may be in another namespace.
func (r *Refs) SecretOf(ctx context.Context, uid types.UID, namespace, name string) (*corev1.Secret, error) {
	return get[*corev1.Secret](ctx, r, uid, key{gr.Secrets, namespace, name})
}

// Drop forgets what a Pod needed.
func (r *Refs) Drop(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, e := range r.entries {
		if delete(e.users, uid); len(e.users) == 0 {
			e.stop()
			delete(r.entries, k)
		}
	}
	r.tokens.drop(uid)
}

// Close lets go of everything, and waits until nothing is followed any more.
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

// hold notes that a Pod uses an object, and says whether that is news.
func (r *Refs) hold(ctx context.Context, uid types.UID, k key) (e *entry, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = r.entries[k]
	if e == nil {
		// The entry lives until its last Pod has gone, not until the caller gives up.
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		e = &entry{key: k, users: map[types.UID]bool{}, stop: stop, opened: make(chan struct{})}
		if r.closed {
			stop()
		}
		r.entries[k] = e
		r.running.Go(func() { r.follow(own, e) })
	}
	news = !e.users[uid]
	e.users[uid] = true
	return e, news
}

// forget takes an entry out, so that the next who asks opens it again.
func (r *Refs) forget(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.stop()
	if r.entries[e.key] == e {
		delete(r.entries, e.key)
	}
}

// tell calls back for every Pod that uses an entry.
func (r *Refs) tell(e *entry) {
	r.mu.Lock()
	users := make([]types.UID, 0, len(e.users))
	for uid := range e.users {
		users = append(users, uid)
	}
	heard := r.heard
	r.mu.Unlock()
	for _, f := range heard {
		for _, uid := range users {
			f(uid)
		}
	}
}

// get finds an object as fresh as the Pod that names it: a Secret that was made before the Pod is seen.
func get[T kind.Object](ctx context.Context, r *Refs, uid types.UID, k key) (T, error) {
	var none T
	e, news := r.hold(ctx, uid, k)
	o, err := r.object(ctx, uid, e, news)
	if err != nil {
		return none, err
	}
	found, ok := o.(T)
	if !ok {
		return none, k.missing()
	}
	return found, nil
}

func (r *Refs) object(ctx context.Context, uid types.UID, e *entry, news bool) (kind.Object, error) {
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	if fixed := e.immutable(); fixed != nil {
		if !news {
			return fixed, nil
		}
		// It is not watched, so only a look tells whether this is still the one that the new Pod means.
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
		e, _ = r.hold(ctx, uid, e.key)
		return r.object(ctx, uid, e, true)
	}
	o, found := e.view.Get(e.namespace, e.name)
	if news || !found {
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
