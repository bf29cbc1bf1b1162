package nodestatus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/cri"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
	"proa.dev/run"
)

// fakeRuntime is a runtime that is ready, not ready, or fails.
type fakeRuntime struct {
	mu    sync.Mutex
	err   error
	ready bool
}

func (e *fakeRuntime) set(away error, ready bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.ready = away, ready
}

func (e *fakeRuntime) About(context.Context) (string, string, error) {
	return "containerd", "2.4.2", nil
}

func (e *fakeRuntime) Status(context.Context) (*cri.StatusResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	network := &cri.RuntimeCondition{Type: cri.NetworkReady, Status: e.ready}
	if !e.ready {
		network.Reason, network.Message = "NetworkPluginNotReady", "Network plugin returns error: cni plugin not initialized"
	}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true},
		network}}}, nil
}

func (e *fakeRuntime) Images(context.Context) ([]*cri.Image, error) {
	return []*cri.Image{{Size: 3, RepoTags: []string{"a:1"}}}, nil
}

// eventRecorder records the reasons of Events.
type eventRecorder struct {
	mu      sync.Mutex
	reasons []string
}

func (e *eventRecorder) Event(_ kind.Object, eventType, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons = append(e.reasons, reason)
}

func (e *eventRecorder) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := strings.Join(e.reasons, " ")
	e.reasons = nil
	return out
}

// anyAddress allows nodes the addresses of these tests, which the machine does not have.
func anyAddress() proatest.Option {
	return func(c *run.Config) { c.NodeRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")} }
}

func asNode(c *proatest.Cluster, name string) client.Client {
	return c.Server.Client(&user.DefaultInfo{Name: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}})
}

func startNode(t *testing.T, ctx context.Context, c *proatest.Cluster, e *fakeRuntime,
	events nodestatus.EventRecorder) (*nodestatus.Node, func()) {
	t.Helper()
	return startNodeAs(t, ctx, asNode(c, "a"), e, events)
}

func startNodeAs(t *testing.T, ctx context.Context, c client.Client, e *fakeRuntime,
	events nodestatus.EventRecorder) (*nodestatus.Node, func()) {
	t.Helper()
	n, err := nodestatus.New(c, nodestatus.Config{
		Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Port: 10250, Version: "v1.37.1", Data: "/",
		Labels: map[string]string{corev1.LabelTopologyZone: "z"}, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}},
	}, nodestatus.Parts{Runtime: e, Events: events}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func get(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	o, err := c.Get(t.Context(), gr.Nodes, "", "a", "")
	if err != nil {
		t.Fatal(err)
	}
	return o.(*corev1.Node)
}

// leaseRenewTime checks the Lease of the node, and returns when it was renewed.
func leaseRenewTime(t *testing.T, c client.Client) time.Time {
	t.Helper()
	o, err := c.Get(t.Context(), gr.Leases, corev1.NamespaceNodeLease, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	l := o.(*coordinationv1.Lease)
	if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].Kind != "Node" || *l.Spec.LeaseDurationSeconds != 40 ||
		*l.Spec.HolderIdentity != "a" {
		t.Errorf("the lease is %+v", l)
	}
	return l.Spec.RenewTime.Time
}

func readiness(o *corev1.Node) string {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return fmt.Sprintf("%s: %s", c.Status, c.Message)
		}
	}
	return "none"
}

// eventFunc calls a function at each Event.
type eventFunc func(reason string)

func (f eventFunc) Event(_ kind.Object, _, reason, _ string, _ ...any) { f(reason) }

// TestChangeDuringCheck checks that a node notices what others write while it checks its status. An Event is recorded in the middle of
// such a check, so the other writer uses that moment.
func TestChangeDuringCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), anyAddress())
		written := false
		events := eventFunc(func(reason string) {
			if reason != "NodeNotSchedulable" {
				return
			}
			for err := error(nil); !written; written = err == nil { // a controller adds the taint of a cordoned node
				o := get(t, c.Client)
				o.Status.Addresses = nil
				if _, err = c.Client.Update(t.Context(), gr.Nodes, o, "status"); err != nil && !apierrors.IsConflict(err) {
					t.Error(err)
					return
				}
			}
			time.Sleep(time.Second) // until the watch has delivered it
		})
		_, stop := startNode(t, t.Context(), c, &fakeRuntime{ready: true}, events)
		time.Sleep(time.Minute)
		o := get(t, c.Client)
		o.Spec.Unschedulable = true
		if _, err := c.Client.Update(t.Context(), gr.Nodes, o, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if o = get(t, c.Client); !written || len(o.Status.Addresses) != 2 {
			t.Errorf("the Node has the addresses %v after somebody has removed them", o.Status.Addresses)
		}
		stop()
		c.Stop()
	})
}

// TestNodeLifecycle covers the lifecycle of a Node in a real cluster, with the node's own identity.
func TestNodeLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), anyAddress())
		e, events := &fakeRuntime{}, &eventRecorder{}
		_, stop := startNode(t, t.Context(), c, e, events)
		time.Sleep(time.Second)
		o := get(t, c.Client)
		if got, want := readiness(o), "False: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if o.Labels[corev1.LabelTopologyZone] != "z" || o.Labels[corev1.LabelHostname] != "a" ||
			!strings.Contains(fmt.Sprint(o.Spec.Taints), "{k  NoSchedule") {
			t.Errorf("labels %v, taints %v", o.Labels, o.Spec.Taints)
		}
		if o.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.4.2" || o.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 ||
			len(o.Status.Images) != 1 || !slices.Equal(o.Status.DeclaredFeatures, nodestatus.DefaultFeatures()) {
			t.Errorf("status %+v", o.Status)
		}
		first := leaseRenewTime(t, c.Client)
		e.set(nil, true)
		time.Sleep(6 * time.Second)
		if got := readiness(get(t, c.Client)); got != "True: kubelet is posting ready status" {
			t.Error(got)
		}
		if got := events.take(); !strings.HasPrefix(got, "Starting") || !strings.HasSuffix(got, "NodeReady") {
			t.Errorf("events %s", got)
		}
		time.Sleep(10 * time.Second)
		if d := leaseRenewTime(t, c.Client).Sub(first); d < 10*time.Second || d > 20*time.Second {
			t.Errorf("renewed after %s", d)
		}
		// A runtime that fails for a short time does not make the node unready; for a long time it does.
		e.set(errors.New("no connection"), true)
		time.Sleep(15 * time.Second)
		if got := readiness(get(t, c.Client)); !strings.HasPrefix(got, "True") {
			t.Errorf("after 15 s: %s", got)
		}
		time.Sleep(30 * time.Second)
		if got := readiness(get(t, c.Client)); got != "False: container runtime is down" {
			t.Errorf("after 45 s: %s", got)
		}
		e.set(nil, true)
		time.Sleep(6 * time.Second)
		events.take()

		// A restarted agent keeps the Node as it is, and does not report it as unready meanwhile.
		stop()
		e.set(errors.New("starting"), true)
		before := get(t, c.Client)
		_, stop = startNode(t, t.Context(), c, e, events)
		time.Sleep(2 * time.Second)
		e.set(nil, true)
		time.Sleep(5 * time.Second)
		after := get(t, c.Client)
		if after.UID != before.UID || readiness(after) != readiness(before) ||
			after.Status.Conditions[3].LastTransitionTime != before.Status.Conditions[3].LastTransitionTime {
			t.Errorf("before %v\nafter %v", before.Status.Conditions, after.Status.Conditions)
		}
		if got := events.take(); got != "Starting" {
			t.Errorf("events of a restart: %s", got)
		}
		// Without changes the status is written only every few minutes.
		time.Sleep(3 * time.Minute)
		quiet := get(t, c.Client).ResourceVersion
		time.Sleep(2 * time.Minute)
		if v := get(t, c.Client).ResourceVersion; v != quiet && after.ResourceVersion != quiet {
			t.Errorf("written twice in 5 minutes")
		}
		time.Sleep(8 * time.Minute)
		if v := get(t, c.Client).ResourceVersion; v == after.ResourceVersion {
			t.Errorf("not written in 13 minutes")
		}
		stop()
		c.Stop()
	})
}

// TestStatusFieldsOfOthersAreKept causes conflicts: fields of the status that others have set are kept.
func TestStatusFieldsOfOthersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), anyAddress())
		e := &fakeRuntime{ready: true}
		n, stop := startNode(t, t.Context(), c, e, nil)
		time.Sleep(time.Second)
		o := get(t, c.Client)
		o.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v", DevicePath: "d"}}
		o.Status.Capacity["example.com/x"] = *o.Status.Capacity.Cpu()
		o.Spec.Unschedulable = true
		if _, err := c.Client.Update(t.Context(), gr.Nodes, o, "status"); err != nil {
			t.Fatal(err)
		}
		e.set(nil, false)
		n.Refresh()
		time.Sleep(time.Second)
		o = get(t, c.Client)
		if len(o.Status.VolumesAttached) != 1 || !strings.HasPrefix(readiness(o), "False") {
			t.Errorf("attached %v, %s", o.Status.VolumesAttached, readiness(o))
		}
		if q := o.Status.Allocatable["example.com/x"]; q.IsZero() {
			t.Error("a resource of others is not allocatable")
		}
		stop()
		c.Stop()
	})
}
