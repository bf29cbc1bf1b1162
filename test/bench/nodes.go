package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseSeconds is what kubelets put into their Leases.
const leaseSeconds = 40

func nodeName(i int) string { return fmt.Sprintf("bench-node-%05d", i) }

// holdTaint keeps Pods away from nodes until they are released.
const holdTaint = "proa.dev/bench-hold"

// node is a node as a kubelet would have registered it, in one of some zones.
func node(i, zones int) *corev1.Node {
	name := nodeName(i)
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("4"),
		corev1.ResourceMemory:           resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	labels := ours()
	labels[corev1.LabelHostname] = name
	labels[corev1.LabelTopologyZone] = "zone-" + strconv.Itoa(i%zones)
	labels[corev1.LabelOSStable], labels[corev1.LabelArchStable] = "linux", "amd64"
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", LastHeartbeatTime: now, LastTransitionTime: now},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", LastHeartbeatTime: now, LastTransitionTime: now},
				{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", LastHeartbeatTime: now, LastTransitionTime: now},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now},
			},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// renewal is how often each of n nodes renews its Lease: as kubelets do, but
// for very many nodes as rarely as a node lifecycle controller bears.
func renewal(n int) time.Duration {
	if n <= 1000 {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// fleet is a number of nodes to make.
type fleet struct {
	n, zones int
	held     bool // tainted until they are released
}

// nodes creates nodes with their Leases, renews those until the context ends,
// and waits until Pods can be scheduled to all nodes.
func (c *cluster) nodes(ctx context.Context, f fleet, parallel int) error {
	n := f.n
	leases := make([]*coordinationv1.Lease, n)
	all := place{door: c.core, resource: "nodes"}
	held := place{door: c.coordination, namespace: corev1.NamespaceNodeLease, resource: "leases"}
	_, _, err := workers(parallel, time.Hour, n, func(i int) error {
		object := node(i, f.zones)
		if f.held {
			object.Spec.Taints = []corev1.Taint{{Key: holdTaint, Effect: corev1.TaintEffectNoSchedule}}
		}
		if err := all.create(ctx, object); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
		leases[i] = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: held.namespace, Name: object.Name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: object.Name, UID: object.UID},
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &object.Name, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: new(metav1.NowMicro())},
		}
		if err := held.create(ctx, leases[i]); err != nil {
			return fmt.Errorf("create lease: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	renew(ctx, held, leases, renewal(n))
	return c.waitUntainted(ctx, n)
}

// renew renews Leases in the background, evenly over the period.
func renew(ctx context.Context, held place, leases []*coordinationv1.Lease, period time.Duration) {
	const hands = 8
	var once sync.Once
	for hand := range hands {
		go func() {
			start := time.Now()
			for turn := 0; ; turn++ {
				for i := hand; i < len(leases); i += hands {
					at := start.Add(time.Duration(turn)*period + period*time.Duration(i)/time.Duration(len(leases)))
					if sleep(ctx, time.Until(at)) != nil {
						return
					}
					leases[i].Spec.RenewTime = new(metav1.NowMicro())
					err := held.update(ctx, leases[i].Name, leases[i])
					if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
						once.Do(func() { progress("a Lease was not renewed: %v", err) })
					}
				}
			}
		}()
	}
}

// release takes the taints off nodes that are held.
func (c *cluster) release(ctx context.Context, n, parallel int) error {
	_, _, err := workers(parallel, time.Hour, n, func(i int) error {
		patch := []byte(`{"spec":{"taints":null}}`)
		return place{door: c.core, resource: "nodes"}.patch(ctx, nodeName(i), patch, &corev1.Node{})
	})
	return err
}

// waitUntainted waits until no node carries the taint it was born with.
func (c *cluster) waitUntainted(ctx context.Context, n int) error {
	left := n
	err := until(ctx, 2*time.Minute, func() (bool, error) {
		var list corev1.NodeList
		if err := c.core.Get().Resource("nodes").Param("resourceVersion", "0").Do(ctx).Into(&list); err != nil {
			return false, err
		}
		clean := 0
		for _, x := range list.Items {
			if !slices.ContainsFunc(x.Spec.Taints, func(t corev1.Taint) bool { return t.Key != holdTaint }) {
				clean++
			}
		}
		left = n - clean
		if left > 0 {
			return false, sleep(ctx, 200*time.Millisecond)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d nodes are not ready for Pods: %w", left, n, err)
	}
	return nil
}

// sweep removes what the measurements left in a cluster that lives on.
func (c *cluster) sweep(ctx context.Context) error {
	now := &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	var spaces corev1.NamespaceList
	if err := c.core.Get().Resource("namespaces").Param("labelSelector", "proa.dev/bench").Do(ctx).Into(&spaces); err != nil {
		return err
	}
	for _, x := range spaces.Items {
		if err := c.core.Delete().Namespace(x.Name).Resource("pods").Body(now).Do(ctx).Error(); err != nil {
			return err
		}
		if err := (place{door: c.core, resource: "namespaces"}).remove(ctx, x.Name, nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, x := range []place{{door: c.core, resource: "nodes"}, {door: c.scheduling, resource: "priorityclasses"}} {
		if err := x.door.Delete().Resource(x.resource).Param("labelSelector", "proa.dev/bench").Do(ctx).Error(); err != nil {
			return err
		}
	}
	return until(ctx, 5*time.Minute, func() (bool, error) {
		err := c.core.Get().Resource("namespaces").Param("labelSelector", "proa.dev/bench").Do(ctx).Into(&spaces)
		return len(spaces.Items) == 0, err
	})
}
