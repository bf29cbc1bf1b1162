package nodestatus

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/node/clock"
)

// A Lease says that its node is alive. It counts for leaseSeconds and is renewed four times in that time.
const (
	leaseSeconds = 40
	renewEvery   = leaseSeconds / 4 * time.Second
)

// heartbeat renews the Lease until ctx ends. After a failure it tries again soon. It returns an error when another agent has taken the
// node over.
func (n *Node) heartbeat(ctx context.Context) error {
	var have *coordinationv1.Lease
	again := 200 * time.Millisecond
	for ctx.Err() == nil {
		next, err := n.renew(ctx, have)
		if IsTaken(err) {
			return err
		}
		wait := renewEvery
		if err == nil {
			have, again, n.renewed = next, 200*time.Millisecond, true
		} else {
			// What is there is not what was thought, or cannot be known: look again.
			have = nil
			if ctx.Err() == nil {
				n.log.Error("the Lease of the node cannot be renewed", "node", n.Name, "err", err)
			}
			wait, again = again, min(2*again, 7*time.Second)
		}
		if !clock.Sleep(ctx, wait) {
			return nil
		}
	}
	return nil
}

// renew writes the Lease. have is the one written before, or nil.
func (n *Node) renew(ctx context.Context, have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, stop := context.WithTimeout(ctx, renewEvery)
	defer stop()
	if have == nil {
		o, err := n.cluster.Get(ctx, gr.Leases, corev1.NamespaceNodeLease, n.Name, "")
		switch {
		case err == nil:
			have, _ = o.(*coordinationv1.Lease)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.Name}}
	if have != nil {
		if err := n.checkHolder(have); err != nil {
			return nil, err
		}
		lease = have.DeepCopy()
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[agentAnnotation] = n.agent
	if o := n.Current(); o != nil && (len(lease.OwnerReferences) == 0 || lease.OwnerReferences[0].UID != o.UID) {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: o.Name, UID: o.UID}}
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &n.Name, new(int32(leaseSeconds))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	return n.write(ctx, lease)
}

// write makes a Lease, or stores the one that is there.
func (n *Node) write(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	var o kind.Object
	var err error
	if lease.ResourceVersion == "" {
		o, err = n.cluster.Create(ctx, gr.Leases, lease)
	} else {
		o, err = n.cluster.Update(ctx, gr.Leases, lease, "")
	}
	if err != nil {
		return nil, err
	}
	stored, ok := o.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("the cluster has stored a %T as Lease", o)
	}
	return stored, nil
}
