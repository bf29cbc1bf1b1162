package nettest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// Objects parses YAML documents.
func Objects(t testing.TB, text string) (out []kind.Object) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		o := map[string]kind.Object{"Service": &corev1.Service{}, "EndpointSlice": &discoveryv1.EndpointSlice{}, "Node": &corev1.Node{},
			"Namespace": &corev1.Namespace{},
			"Pod":       &corev1.Pod{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}}[head.Kind]
		if o == nil {
			t.Fatalf("no kind in\n%s", doc)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o.GetNamespace() == "" && head.Kind != "Node" && head.Kind != "Namespace" {
			o.SetNamespace("default")
		}
		out = append(out, o)
	}
	return out
}

// View is a client.View that the test changes.
type View struct {
	mu      sync.Mutex
	objects map[string]kind.Object
	changed chan struct{}
	log     []client.Event
}

// NewView returns an empty view.
func NewView() *View {
	return &View{objects: map[string]kind.Object{}, changed: make(chan struct{})}
}

// Put adds or changes an object.
func (v *View) Put(o kind.Object) { v.change(o, false) }

// Remove deletes an object, if it exists.
func (v *View) Remove(namespace, name string) {
	if o, ok := v.Get(namespace, name); ok {
		v.change(o, true)
	}
}

func (v *View) change(o kind.Object, deleted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := o.GetNamespace() + "/" + o.GetName()
	rev, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64) // many objects of tests have none
	e := client.Event{Object: o, Old: v.objects[k], Deleted: deleted, Rev: rev}
	if deleted {
		delete(v.objects, k)
	} else {
		v.objects[k] = o
	}
	v.log = append(v.log, e)
	close(v.changed)
	v.changed = make(chan struct{})
}

// Get returns an object.
func (v *View) Get(namespace, name string) (kind.Object, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o, ok := v.objects[namespace+"/"+name]
	return o, ok
}

// List returns the objects of a namespace, or all.
func (v *View) List(namespace string) iter.Seq[kind.Object] {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []kind.Object
	for _, k := range slices.Sorted(maps.Keys(v.objects)) {
		if o := v.objects[k]; namespace == "" || o.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	return slices.Values(out)
}

// By returns the objects that have a value in an index.
func (v *View) By(index client.Index, value string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range v.List("") {
			if slices.Contains(index.Values(o), value) && !yield(o) {
				return
			}
		}
	}
}

// Events returns all changes since the beginning.
func (v *View) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for seen := 0; ; {
			v.mu.Lock()
			events, changed := v.log[seen:], v.changed
			seen = len(v.log)
			v.mu.Unlock()
			for _, e := range events {
				if !yield(e) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// Reach returns at once.
func (v *View) Reach(context.Context, int64) error { return nil }

// Unreadable returns nothing: all objects of a test can be read.
func (v *View) Unreadable(string) []string { return nil }
