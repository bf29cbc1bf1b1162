package simulate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

func nodeIndex() client.Index { return client.ByNode() }

// heartbeat is how often a node renews its Lease, leaseSeconds how long that is valid.
const (
	heartbeat    = 10 * time.Second
	leaseSeconds = 40
)

// Register creates the first n simulated nodes, if they do not exist.
func Register(ctx context.Context, c client.Writer, n int) error {
	names := make(chan int)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for range min(n, 32) {
		wg.Go(func() {
			for i := range names {
				errs[i] = register(ctx, c, i)
			}
		})
	}
	for i := range n {
		names <- i
	}
	close(names)
	wg.Wait()
	return errors.Join(errs...)
}

func register(ctx context.Context, c client.Writer, i int) error {
	name := fmt.Sprintf("sim-%d", i)
	_, err := c.Create(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{Annotation: strconv.Itoa(i)},
		Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
			corev1.LabelTopologyRegion: "simulated", corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
		},
	}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the simulated node %s: %w", name, err)
	}
	return nil
}

// nodes is the controller that keeps simulated nodes alive.
func nodes() control.Controller {
	return control.Controller{
		Name: "simulated-nodes", Component: "kubelet", For: gr.Nodes, Reads: []schema.GroupResource{gr.Leases}, Workers: 8,
		When: func(old, now kind.Object) bool {
			return now != nil && simulated(now) && (old == nil || !isComplete(now.(*corev1.Node)) || !simulated(old))
		},
		Writes: []control.Write{{On: gr.Nodes, Do: "update/status"}, {On: gr.Leases, Do: "create update"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			node, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || !simulated(node) {
				return 0, nil
			}
			now := time.Now()
			if err := renew(ctx, c, node, now); err != nil {
				return 0, err
			}
			if !isComplete(node) {
				next := node.DeepCopy()
				describe(&next.Status, node, now)
				if _, err := c.Update(ctx, gr.Nodes, next, "status"); err != nil && !apierrors.IsNotFound(err) {
					return 0, err
				}
			}
			return heartbeat, nil
		},
	}
}

// renew renews the node's Lease.
func renew(ctx context.Context, c *control.Cluster, node *corev1.Node, now time.Time) error {
	spec := coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: new(int32(leaseSeconds)),
		RenewTime: new(metav1.NewMicroTime(now))}
	have, found := control.Get[*coordinationv1.Lease](c, gr.Leases, corev1.NamespaceNodeLease, node.Name)
	var err error
	if !found {
		_, err = c.Create(ctx, gr.Leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: corev1.NamespaceNodeLease, Name: node.Name,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: spec,
		})
		if apierrors.IsAlreadyExists(err) {
			return nil // the view will show it
		}
		return err
	}
	if r := have.Spec.RenewTime; r != nil && now.Sub(r.Time) < heartbeat/2 {
		return nil
	}
	next := have.DeepCopy()
	next.Spec = spec
	_, err = c.Update(ctx, gr.Leases, next, "")
	return err
}

// isComplete reports whether a node's status is complete and ready.
func isComplete(node *corev1.Node) bool {
	ready := false
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c.Status == corev1.ConditionTrue
		}
	}
	return ready && len(node.Status.Addresses) > 0 && len(node.Status.Allocatable) > 0
}

// describe fills in a node's status. What others maintain there, such as extended resources, stays.
func describe(st *corev1.NodeStatus, node *corev1.Node, now time.Time) {
	put := func(list *corev1.ResourceList) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		for name, amount := range map[corev1.ResourceName]string{
			corev1.ResourceCPU: "32", corev1.ResourceMemory: "256Gi", corev1.ResourcePods: "110", corev1.ResourceEphemeralStorage: "500Gi",
		} {
			if _, ok := (*list)[name]; !ok {
				(*list)[name] = resource.MustParse(amount)
			}
		}
	}
	put(&st.Capacity)
	put(&st.Allocatable)
	if len(st.Addresses) == 0 {
		st.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ownIP(node)},
			{Type: corev1.NodeHostName, Address: node.Name}}
	}
	if st.NodeInfo.KubeletVersion == "" {
		st.NodeInfo = corev1.NodeSystemInfo{
			MachineID: string(node.UID), SystemUUID: string(node.UID), BootID: string(node.UID), OperatingSystem: "linux",
			Architecture:  runtime.GOARCH,
			KernelVersion: "simulated", OSImage: "simulated", ContainerRuntimeVersion: "simulated://1", KubeletVersion: "v1.37.1+proa",
		}
	}
	for _, x := range []struct {
		t               corev1.NodeConditionType
		is              corev1.ConditionStatus
		reason, message string
	}{
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the simulated node is ready"},
	} {
		setCondition(st, corev1.NodeCondition{Type: x.t, Status: x.is, Reason: x.reason, Message: x.message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now)})
	}
}

func setCondition(st *corev1.NodeStatus, c corev1.NodeCondition) {
	for i := range st.Conditions {
		if have := &st.Conditions[i]; have.Type == c.Type {
			if have.Status == c.Status {
				c.LastTransitionTime = have.LastTransitionTime
			}
			*have = c
			return
		}
	}
	st.Conditions = append(st.Conditions, c)
}

// ownIP computes an address from the number with which a node was registered.
func ownIP(node *corev1.Node) string {
	var n uint32
	if _, err := fmt.Sscan(node.Annotations[Annotation], &n); err != nil {
		r := podRange(node).Addr().As4()
		n = uint32(r[1])<<8 | uint32(r[2])
	}
	n += 2
	return fmt.Sprintf("172.%d.%d.%d", 16+n>>16&15, n>>8&255, n&255)
}
