package nodestatus_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodeaddress"
	"proa.dev/proatest"
)

// countingClient counts updates of Nodes.
type countingClient struct {
	client.Client
	writes atomic.Int64
}

func (c *countingClient) Update(ctx context.Context, on schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	if on == gr.Nodes {
		c.writes.Add(1)
	}
	return c.Client.Update(ctx, on, o, sub)
}

// TestRefusedAddress checks that a node whose address the server refuses is registered without it, and is not ready with the reason. It
// retries, and is ready as soon as an administrator allows the address.
func TestRefusedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone())
		events := &eventRecorder{}
		as := &countingClient{Client: asNode(c, "a")}
		_, stop := startNodeAs(t, t.Context(), as, &fakeRuntime{ready: true}, events)
		time.Sleep(time.Minute)
		o := get(t, c.Client)
		if got := readiness(o); !strings.HasPrefix(got, "False: the server refuses the address 10.0.0.1: ") ||
			!strings.Contains(got, nodeaddress.Annotation) {
			t.Errorf("the condition is %s", got)
		}
		if len(o.Status.Addresses) != 1 || o.Status.Addresses[0] != (corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a"}) {
			t.Errorf("the Node has the addresses %v", o.Status.Addresses)
		}
		before := as.writes.Load()
		time.Sleep(10 * time.Minute)
		if n := as.writes.Load() - before; n > 150 {
			t.Errorf("the node writes %d times in 10 minutes", n)
		}
		if got := events.take(); strings.Count(got, "AddressRefused") != 1 {
			t.Errorf("events %s", got)
		}
		o = get(t, c.Client)
		o.Annotations[nodeaddress.Annotation] = "10.0.0.0/30"
		if _, err := c.Client.Update(t.Context(), gr.Nodes, o, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		o = get(t, c.Client)
		if got := readiness(o); got != "True: kubelet is posting ready status" || len(o.Status.Addresses) != 2 {
			t.Errorf("allowed: %s, %v", got, o.Status.Addresses)
		}
		// The address is removed, and no longer allowed: the node becomes unready.
		delete(o.Annotations, nodeaddress.Annotation)
		if _, err := c.Client.Update(t.Context(), gr.Nodes, o, ""); err != nil {
			t.Fatal(err)
		}
		o = get(t, c.Client)
		o.Status.Addresses = nil
		if _, err := c.Client.Update(t.Context(), gr.Nodes, o, "status"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := readiness(get(t, c.Client)); !strings.HasPrefix(got, "False: the server refuses the address 10.0.0.1: ") {
			t.Errorf("removed: %s", got)
		}
		stop()
		c.Stop()
	})
}
