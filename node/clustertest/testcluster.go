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

// TestCluster is a cluster with one node, and the recorder of the Events of its agent.
type TestCluster struct {
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
func Start(t testing.TB, node *corev1.Node) *TestCluster {
	t.Helper()
	cluster := proatest.Start(t, proatest.Memory(), proatest.Alone())
	c := &TestCluster{TB: t, Cluster: cluster, node: node.Name}
	c.Agent = cluster.Server.Client(&user.DefaultInfo{Name: "system:node:" + node.Name,
		Groups: []string{user.NodesGroup, user.AllAuthenticated}})
	c.Create(gr.Nodes, node)
	var err error
	if c.Pods, err = c.Agent.Part(t.Context(), gr.Pods, client.Scope{Node: node.Name}); err != nil {
		t.Fatal(err)
	}
	c.Until("the default service account", func() bool {
		_, err := cluster.Client.Get(t.Context(), gr.ServiceAccounts, "default", "default", "")
		_, err2 := cluster.Client.Get(t.Context(), gr.ConfigMaps, "default", "kube-root-ca.crt", "")
		return err == nil && err2 == nil
	})
	return c
}

// Event implements event.Recorder.
func (c *TestCluster) Event(_ event.Subject, eventType, reason, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %s %s", eventType, reason, fmt.Sprintf(format, args...)))
}

// Events returns all recorded Events, such as "Warning FailedMount ...".
func (c *TestCluster) Events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// Recorded reports whether an Event was recorded.
func (c *TestCluster) Recorded(text string) bool { return slices.Contains(c.Events(), text) }

// Fails runs something that cannot succeed, waits for the Event that says why, and cancels it.
func (c *TestCluster) Fails(text string, do func(context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	c.Until(text, func() bool { return c.Recorded(text) })
	cancel()
	if err := <-done; err == nil {
		c.Errorf("it succeeded, though it should fail with: %s", text)
	}
}

// Create creates an object as an administrator.
func (c *TestCluster) Create(on schema.GroupResource, o kind.Object) kind.Object {
	c.Helper()
	created, err := c.Cluster.Client.Create(c.Context(), on, o)
	if err != nil {
		c.Fatal(err)
	}
	return created
}

// Until waits until a condition is true.
func (c *TestCluster) Until(what string, ok func() bool) {
	c.Helper()
	for start := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			c.Fatalf("timeout while waiting for %s; events: %q", what, c.Events())
		}
	}
}

// Pod creates a Pod on the node from its spec; the label app is its name.
func (c *TestCluster) Pod(name, spec string) *corev1.Pod {
	c.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		c.Fatal(err)
	}
	p.Spec.NodeName, p.Spec.AutomountServiceAccountToken = c.node, new(false)
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = "none"
	}
	p = c.Create(gr.Pods, p).(*corev1.Pod)
	if err := c.Pods.Reach(c.Context(), 0); err != nil {
		c.Fatal(err)
	}
	return p
}
