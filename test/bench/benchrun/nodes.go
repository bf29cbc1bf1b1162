package benchrun

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
)

// leaseSeconds is the duration of the Leases of kubelets.
const leaseSeconds = 40

// NodeName returns the name of the i-th node.
func NodeName(i int) string { return fmt.Sprintf("bench-node-%05d", i) }

// holdTaint keeps Pods away from nodes until they are released.
const holdTaint = "proa.dev/bench-hold"

// Node returns a node as a kubelet would register it, in one of some zones.
func Node(i, zones int) *corev1.Node {
	name := NodeName(i)
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("4"),
		corev1.ResourceMemory:           resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	labels := OwnLabels()
	labels[corev1.LabelHostname] = name
	labels[corev1.LabelTopologyZone] = "zone-" + strconv.Itoa(i%zones)
	labels[corev1.LabelOSStable], labels[corev1.LabelArchStable] = "linux", "amd64"
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
					LastHeartbeatTime: now, LastTransitionTime: now},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", LastHeartbeatTime: now,
					LastTransitionTime: now},
				{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", LastHeartbeatTime: now,
					LastTransitionTime: now},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
					LastTransitionTime: now},
			},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// renewal returns how often each of n nodes renews its Lease: as kubelets do, but for very many nodes as rarely as a
// node lifecycle controller tolerates.
func renewal(n int) time.Duration {
	if n <= 1000 {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// Fleet is a number of nodes to make.
type Fleet struct {
	N, Zones int
	Held     bool // tainted until they are released
}

// Nodes creates nodes with their Leases, renews those until the context ends,
// and waits until Pods can be scheduled to all nodes.
func (c *Cluster) Nodes(ctx context.Context, f Fleet, parallel int) error {
	held := ResourceClient{Door: c.coordination, Namespace: corev1.NamespaceNodeLease, Resource: "leases"}
	leases := make(chan due, f.N)
	renew(ctx, held, leases, renewal(f.N))
	_, _, err := Workers(parallel, time.Hour, f.N, func(i int) error {
		object := Node(i, f.Zones)
		if err := (ResourceClient{Door: c.Core, Resource: "nodes"}).Create(ctx, object); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
		lease := leaseOf(object)
		if err := held.Create(ctx, lease); err != nil {
			return fmt.Errorf("create lease: %w", err)
		}
		leases <- due{lease, time.Now().Add(renewal(f.N))}
		// A new node is tainted until a controller has seen it ready, which
		// takes long for thousands and is not what is measured.
		return c.setTaints(ctx, object.Name, f.Held)
	})
	if err != nil {
		return err
	}
	return c.WaitNodes(ctx, f.N, OtherTaint)
}

func leaseOf(node *corev1.Node) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: new(int32(leaseSeconds)),
			RenewTime: new(metav1.NowMicro())},
	}
}

// due is a Lease and the time of its next renewal.
type due struct {
	lease *coordinationv1.Lease
	at    time.Time
}

// renew renews Leases in the background, each once a period. Leases come in the order in which they are due, and go to
// the end of the queue.
func renew(ctx context.Context, held ResourceClient, leases chan due, period time.Duration) {
	const hands = 8
	var once sync.Once
	for range hands {
		go func() {
			for {
				var next due
				select {
				case <-ctx.Done():
					return
				case next = <-leases:
				}
				if wait.Sleep(ctx, time.Until(next.at)) != nil {
					return
				}
				next.lease.Spec.RenewTime = new(metav1.NowMicro())
				err := held.Update(ctx, next.lease.Name, next.lease)
				if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
					once.Do(func() { Progress("a Lease was not renewed: %v", err) })
				}
				next.at = next.at.Add(period)
				leases <- next
			}
		}()
	}
}

// Release removes the taints of nodes that are held.
func (c *Cluster) Release(ctx context.Context, n, parallel int) error {
	_, _, err := Workers(parallel, time.Hour, n, func(i int) error {
		return c.setTaints(ctx, NodeName(i), false)
	})
	return err
}

// setTaints leaves a node with the taint that holds it, or with none.
func (c *Cluster) setTaints(ctx context.Context, name string, held bool) error {
	taints := "null"
	if held {
		taints = `[{"key":"` + holdTaint + `","effect":"NoSchedule"}]`
	}
	err := ResourceClient{Door: c.Core, Resource: "nodes"}.Patch(ctx, name, []byte(`{"spec":{"taints":`+taints+`}}`), &corev1.Node{})
	if err != nil {
		return fmt.Errorf("taint node: %w", err)
	}
	return nil
}

// OtherTaint returns the taint of a node that has another than the one that holds it; empty if it has none.
func OtherTaint(x *corev1.Node) string {
	for _, t := range x.Spec.Taints {
		if t.Key != holdTaint {
			return "it has the taint " + t.Key
		}
	}
	return ""
}

// NotReadyReason returns why a node is not ready; empty if it is.
func NotReadyReason(x *corev1.Node) string {
	for _, c := range x.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return "it is not ready"
}

// WaitNodes waits until against returns nothing for n nodes.
func (c *Cluster) WaitNodes(ctx context.Context, n int, against func(*corev1.Node) string) error {
	good, last := 0, "they are not there"
	err := WaitUntil(ctx, 2*time.Minute, func() (bool, error) {
		var list corev1.NodeList
		if err := c.Core.Get().Resource("nodes").Param("resourceVersion", "0").Do(ctx).Into(&list); err != nil {
			return false, err
		}
		good = 0
		for i := range list.Items {
			if why := against(&list.Items[i]); why != "" {
				last = why
			} else {
				good++
			}
		}
		if good < n {
			return false, wait.Sleep(ctx, 200*time.Millisecond)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d nodes are not as they should be (of one: %s): %w", n-good, n, last, err)
	}
	return nil
}

// sweep removes what the measurements have left in a cluster that goes on after the run.
func (c *Cluster) sweep(ctx context.Context) error {
	now := &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	var spaces corev1.NamespaceList
	if err := c.Core.Get().Resource("namespaces").Param("labelSelector", "proa.dev/bench").Do(ctx).Into(&spaces); err != nil {
		return err
	}
	for _, x := range spaces.Items {
		if err := c.Core.Delete().Namespace(x.Name).Resource("pods").Body(now).Do(ctx).Error(); err != nil {
			return err
		}
		if err := (ResourceClient{Door: c.Core, Resource: "namespaces"}).Remove(ctx, x.Name, nil); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, x := range []ResourceClient{{Door: c.Core, Resource: "nodes"}, {Door: c.Scheduling, Resource: "priorityclasses"}} {
		if err := x.Door.Delete().Resource(x.Resource).Param("labelSelector", "proa.dev/bench").Do(ctx).Error(); err != nil {
			return err
		}
	}
	return WaitUntil(ctx, 5*time.Minute, func() (bool, error) {
		err := c.Core.Get().Resource("namespaces").Param("labelSelector", "proa.dev/bench").Do(ctx).Into(&spaces)
		return len(spaces.Items) == 0, err
	})
}
