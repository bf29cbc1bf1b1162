package aggregation

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// objectServer is an API server with objects in memory.
type objectServer struct {
	mu      sync.Mutex
	rev     int
	objects map[string]*unstructured.Unstructured // by namespace/name
	log     []loggedEvent
	changed chan struct{}
	callers map[string]bool // the users who have deleted objects
}

type loggedEvent struct {
	Type   string                     `json:"type"`
	Object *unstructured.Unstructured `json:"object"`
	rev    int
}

func newObjectServer() *objectServer {
	return &objectServer{rev: 1, objects: map[string]*unstructured.Unstructured{}, changed: make(chan struct{}), callers: map[string]bool{}}
}

const objectServerBase = "/apis/pond.example.com/v1"

// addEvent adds a change to the log. p.mu is held.
func (p *objectServer) addEvent(eventType string, o *unstructured.Unstructured) {
	p.rev++
	o.SetResourceVersion(fmt.Sprint(p.rev))
	p.log = append(p.log, loggedEvent{eventType, o.DeepCopy(), p.rev})
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *objectServer) put(namespace, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("pond.example.com/v1")
	o.SetKind("Frog")
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID("frog-" + namespace + "-" + name))
	o.SetOwnerReferences(owners)
	p.objects[namespace+"/"+name] = o
	p.addEvent("ADDED", o)
	return o.DeepCopy()
}

func (p *objectServer) has(namespace, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[namespace+"/"+name] != nil
}

// remove deletes an object. p.mu is held.
func (p *objectServer) remove(key string) {
	o := p.objects[key]
	delete(p.objects, key)
	p.addEvent("DELETED", o)
}

func (p *objectServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	rest, found := strings.CutPrefix(req.URL.Path, objectServerBase)
	if !found {
		http.NotFound(w, req)
		return
	}
	if rest == "" {
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"pond.example.com/v1","resources":[{"name":"frogs","namespaced":true,"kind":"Frog","verbs":["get","list","watch","delete","update","deletecollection"]}]}`))
		return
	}
	namespace, name := "", ""
	if parts := strings.Split(strings.Trim(rest, "/"), "/"); len(parts) >= 3 {
		if namespace = parts[1]; len(parts) > 3 {
			name = parts[3]
		}
	}
	if req.URL.Query().Get("watch") == "true" {
		p.watch(w, req)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := namespace + "/" + name
	switch {
	case name != "" && p.objects[key] == nil:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonNotFound, Code: 404})
	case req.Method == http.MethodGet && name != "":
		_ = json.NewEncoder(w).Encode(p.objects[key])
	case req.Method == http.MethodDelete:
		p.callers[req.Header.Get("X-Remote-User")] = true
		for k := range p.objects {
			if k == key || name == "" && strings.HasPrefix(k, namespace+"/") {
				p.remove(k)
			}
		}
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	default:
		list := map[string]any{"kind": "FrogList", "apiVersion": "pond.example.com/v1",
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(p.rev)}}
		items := []any{}
		for k, o := range p.objects {
			if namespace == "" || strings.HasPrefix(k, namespace+"/") {
				items = append(items, o.DeepCopy().Object)
			}
		}
		list["items"] = items
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (p *objectServer) watch(w http.ResponseWriter, req *http.Request) {
	var from int
	_, _ = fmt.Sscan(req.URL.Query().Get("resourceVersion"), &from)
	w.(http.Flusher).Flush()
	for req.Context().Err() == nil {
		p.mu.Lock()
		log, moved := p.log, p.changed
		p.mu.Unlock()
		for _, e := range log {
			if e.rev > from {
				_ = json.NewEncoder(w).Encode(e)
				from = e.rev
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-req.Context().Done():
		case <-moved:
		}
	}
}

// TestObjectsOfAggregatedServer checks that the garbage collector and the deletion of namespaces include the objects of an
// aggregated API server. While that server is unavailable, a namespace is not removed and has a condition with the reason, and
// garbage of other groups is still deleted.
func TestObjectsOfAggregatedServer(t *testing.T) {
	t.Parallel()
	at := hostAddress(t)
	cert, key := selfSignedCert(t, "api.pond.svc")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := newObjectServer()
	var away closableHandler
	backend := &http.Server{Handler: away.around(p), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = backend.ServeTLS(l, "", "") }()
	defer func() { _ = backend.Close() }()
	c := proatest.Start(t, proatest.Memory())
	register(t, c, at, l.Addr().(*net.TCPAddr).AddrPort().Port(), cert)

	// A built-in owner with a dependent on the aggregated server.
	owner := createConfigMap(t, c, "default", "owner")
	await(t, func() bool { return availableCondition(t, c) == apiregistrationv1.ConditionTrue })
	p.put("default", "owned", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID()})
	p.put("default", "free")
	deleteConfigMap(t, c, "default", "owner")
	await(t, func() bool { return !p.has("default", "owned") })
	p.mu.Lock()
	if !p.callers["system:serviceaccount:kube-system:generic-garbage-collector"] {
		t.Errorf("deleted by %v", p.callers)
	}
	p.mu.Unlock()

	// An owner on the aggregated server with a built-in dependent.
	frog := p.put("default", "parent")
	ref := metav1.OwnerReference{APIVersion: "pond.example.com/v1", Kind: "Frog", Name: "parent", UID: frog.GetUID()}
	createConfigMap(t, c, "default", "child", ref)
	p.mu.Lock()
	p.remove("default/parent")
	p.mu.Unlock()
	await(t, func() bool { return !exists(t, c, gr.ConfigMaps, "default", "child") })
	if !p.has("default", "free") {
		t.Error("an object without an owner was deleted")
	}

	// A namespace with objects on the aggregated server is removed after them.
	createNamespace(t, c, "full")
	p.put("full", "a")
	p.put("full", "b")
	if err := c.Client.Delete(t.Context(), gr.Namespaces, "", "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return !exists(t, c, gr.Namespaces, "", "full") })
	if p.has("full", "a") || p.has("full", "b") {
		t.Error("the namespace has gone before its objects")
	}

	// The aggregated server does not answer.
	createNamespace(t, c, "waits")
	p.put("waits", "a")
	away.set(true)
	await(t, func() bool { return availableCondition(t, c) == apiregistrationv1.ConditionFalse })
	if err := c.Client.Delete(t.Context(), gr.Namespaces, "", "waits", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		o, err := c.Client.Get(t.Context(), gr.Namespaces, "", "waits", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, cond := range o.(*corev1.Namespace).Status.Conditions {
			if cond.Type == corev1.NamespaceDeletionDiscoveryFailure && cond.Status == corev1.ConditionTrue {
				const want = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: pond.example.com/v1: stale GroupVersion discovery: pond.example.com/v1"
				if cond.Message != want {
					t.Errorf("got %q", cond.Message)
				}
				return true
			}
		}
		return false
	})
	other := createConfigMap(t, c, "default", "other")
	createConfigMap(t, c, "default", "garbage",
		metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: other.GetUID()})
	deleteConfigMap(t, c, "default", "other")
	await(t, func() bool { return !exists(t, c, gr.ConfigMaps, "default", "garbage") })
	away.set(false)
	await(t, func() bool { return !exists(t, c, gr.Namespaces, "", "waits") })
	if p.has("waits", "a") {
		t.Error("the namespace has gone before its object")
	}
}

// closableHandler makes a handler block while it is closed.
type closableHandler struct{ closed atomic.Bool }

func (g *closableHandler) set(closed bool) { g.closed.Store(closed) }

func (g *closableHandler) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if g.closed.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// register creates the Service, its endpoint and the APIService of an aggregated server.
func register(t *testing.T, c *proatest.Cluster, at string, port uint16, ca []byte) {
	t.Helper()
	createNamespace(t, c, "pond")
	for on, o := range map[schema.GroupResource]kind.Object{
		gr.Services: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "pond", Name: "api"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}},
		gr.EndpointSlices: &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "pond", Name: "api-1",
				Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at}}},
			Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(port))}},
		},
		gr.APIServices: &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.pond.example.com"},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: "pond.example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 15, CABundle: ca,
				Service: &apiregistrationv1.ServiceReference{Namespace: "pond", Name: "api", Port: new(int32(443))},
			}},
	} {
		if _, err := c.Client.Create(t.Context(), on, o); err != nil {
			t.Fatal(err)
		}
	}
}

// availableCondition returns the status of the condition Available of the server's APIService.
func availableCondition(t *testing.T, c *proatest.Cluster) apiregistrationv1.ConditionStatus {
	t.Helper()
	o, err := c.Client.Get(t.Context(), gr.APIServices, "", "v1.pond.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, cond := range o.(*apiregistrationv1.APIService).Status.Conditions {
		if cond.Type == apiregistrationv1.Available {
			return cond.Status
		}
	}
	return ""
}

func createNamespace(t *testing.T, c *proatest.Cluster, name string) {
	t.Helper()
	if _, err := c.Client.Create(t.Context(), gr.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

func createConfigMap(t *testing.T, c *proatest.Cluster, namespace, name string, owners ...metav1.OwnerReference) kind.Object {
	t.Helper()
	o, err := c.Client.Create(t.Context(), gr.ConfigMaps,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func deleteConfigMap(t *testing.T, c *proatest.Cluster, namespace, name string) {
	t.Helper()
	if err := c.Client.Delete(t.Context(), gr.ConfigMaps, namespace, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, c *proatest.Cluster, on schema.GroupResource, namespace, name string) bool {
	t.Helper()
	_, err := c.Client.Get(t.Context(), on, namespace, name, "")
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}
