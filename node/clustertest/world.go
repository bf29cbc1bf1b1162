// Package clustertest provides a cluster with one node, for tests of what an agent does with the API. Only tests import
// it.
package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/event"
	"proa.dev/proatest"
)

// World is the cluster and the recorder of its Events.
type World struct {
	testing.TB
	Cluster *proatest.Cluster
	// Agent is a client that acts as the node.
	Agent client.Client
	// Pods is a view of the node's Pods.
	Pods client.View

	node   string
	mu     sync.Mutex // guards events
	events []string
}

// Start starts a cluster with a node.
func Start(t testing.TB, node *corev1.Node) *World {
	t.Helper()
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	w := &World{TB: t, Cluster: c, node: node.Name}
	w.Agent = c.Server.Client(&user.DefaultInfo{Name: "system:node:" + node.Name, Groups: []string{user.NodesGroup, user.AllAuthenticated}})
	w.Create(gr.Nodes, node)
	var err error
	if w.Pods, err = w.Agent.Part(t.Context(), gr.Pods, client.Scope{Node: node.Name}); err != nil {
		t.Fatal(err)
	}
	w.Until("the default service account", func() bool {
		_, err := c.Client.Get(t.Context(), gr.ServiceAccounts, "default", "default", "")
		_, err2 := c.Client.Get(t.Context(), gr.ConfigMaps, "default", "kube-root-ca.crt", "")
		return err == nil && err2 == nil
	})
	return w
}

// Event implements event.Recorder.
func (w *World) Event(_ event.Subject, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %s", eventType, reason, fmt.Sprintf(format, args...)))
}

// Events returns all recorded Events, such as "Warning FailedMount ...".
func (w *World) Events() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// Recorded reports whether an Event was recorded.
func (w *World) Recorded(text string) bool { return slices.Contains(w.Events(), text) }

// Fails runs something that cannot succeed, waits for the Event that says why, and cancels it.
func (w *World) Fails(text string, do func(context.Context) error) {
	w.Helper()
	ctx, giveUp := context.WithCancel(w.Context())
	defer giveUp()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	w.Until(text, func() bool { return w.Recorded(text) })
	giveUp()
	if err := <-done; err == nil {
		w.Errorf("it succeeded, though it should fail with: %s", text)
	}
}

// Create creates an object as an administrator.
func (w *World) Create(on schema.GroupResource, o kind.Object) kind.Object {
	w.Helper()
	made, err := w.Cluster.Client.Create(w.Context(), on, o)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// Until waits until a condition is true.
func (w *World) Until(what string, ok func() bool) {
	w.Helper()
	for begin := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			w.Fatalf("waited in vain for %s; events: %q", what, w.Events())
		}
	}
}

// Pod creates a Pod on the node from its spec; the label app is its name.
func (w *World) Pod(name, spec string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		w.Fatal(err)
	}
	p.Spec.NodeName, p.Spec.AutomountServiceAccountToken = w.node, new(false)
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = "none"
	}
	p = w.Create(gr.Pods, p).(*corev1.Pod)
	if err := w.Pods.Reach(w.Context(), 0); err != nil {
		w.Fatal(err)
	}
	return p
}
