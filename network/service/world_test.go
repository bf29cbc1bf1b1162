package service

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// parseObjects reads documents of YAML.
func parseObjects(t testing.TB, text string) (out []kind.Object) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		o := map[string]kind.Object{"Service": &corev1.Service{}, "EndpointSlice": &discoveryv1.EndpointSlice{}, "Node": &corev1.Node{}}[head.Kind]
		if o == nil {
			t.Fatalf("no kind in\n%s", doc)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o.GetNamespace() == "" && head.Kind != "Node" {
			o.SetNamespace("default")
		}
		out = append(out, o)
	}
	return out
}

// fakeView is a view that the test changes.
type fakeView struct {
	mu      sync.Mutex
	objects map[string]kind.Object
	changed chan struct{}
	log     []client.Event
}

func newView() *fakeView {
	return &fakeView{objects: map[string]kind.Object{}, changed: make(chan struct{})}
}

func (v *fakeView) put(o kind.Object) { v.change(o, false) }

func (v *fakeView) remove(namespace, name string) {
	if o, ok := v.Get(namespace, name); ok {
		v.change(o, true)
	}
}

func (v *fakeView) change(o kind.Object, deleted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := o.GetNamespace() + "/" + o.GetName()
	e := client.Event{Object: o, Old: v.objects[k], Deleted: deleted}
	if deleted {
		delete(v.objects, k)
	} else {
		v.objects[k] = o
	}
	v.log = append(v.log, e)
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *fakeView) Get(namespace, name string) (kind.Object, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o, ok := v.objects[namespace+"/"+name]
	return o, ok
}

func (v *fakeView) List(namespace string) iter.Seq[kind.Object] {
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

func (v *fakeView) By(index client.Index, value string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range v.List("") {
			if slices.Contains(index.Of(o), value) && !yield(o) {
				return
			}
		}
	}
}

func (v *fakeView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for seen := 0; ; {
			v.mu.Lock()
			fresh, changed := v.log[seen:], v.changed
			seen = len(v.log)
			v.mu.Unlock()
			for _, e := range fresh {
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

func (v *fakeView) Reach(context.Context, int64) error { return nil }

// world is a node's proxy with objects that the test makes up.
type world struct {
	t                       testing.TB
	services, slices, nodes *fakeView
}

func newWorld(t testing.TB) *world { return &world{t, newView(), newView(), newView()} }

func (w *world) apply(text string) {
	w.t.Helper()
	for _, o := range parseObjects(w.t, text) {
		switch o.(type) {
		case *corev1.Service:
			w.services.put(o)
		case *discoveryv1.EndpointSlice:
			w.slices.put(o)
		default:
			w.nodes.put(o)
		}
	}
}

// slice is an EndpointSlice in short: addresses, each perhaps with words for its state.
func slice(name, service string, portNumber int, protocol string, endpoints ...string) string {
	family := "IPv4"
	var list strings.Builder
	for _, e := range endpoints {
		words := strings.Fields(e)
		if strings.Contains(words[0], ":") {
			family = "IPv6"
		}
		fmt.Fprintf(&list, "- addresses: [%q]\n", words[0])
		conditions := "ready: true"
		for _, w := range words[1:] {
			switch w {
			case "terminating":
				conditions = "{ready: false, serving: true, terminating: true}"
			case "unready":
				conditions = "{ready: false, serving: false}"
			default:
				fmt.Fprintf(&list, "  nodeName: %s\n", w)
			}
		}
		fmt.Fprintf(&list, "  conditions: %s\n", "{"+strings.Trim(conditions, "{}")+"}")
	}
	return fmt.Sprintf(`
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: "", port: %d, protocol: %s}]
endpoints:
%s`, name, service, family, portNumber, protocol, list.String())
}
