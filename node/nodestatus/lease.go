package nodestatus

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// The Lease of a node is valid for leaseSeconds and is renewed four times in that time.
const (
	leaseSeconds = 40
	renewEvery   = leaseSeconds / 4 * time.Second
)

// heartbeat renews the Lease until ctx ends, with back-off after failures. It returns an error when another agent has
// taken over the node.
func (n *Node) heartbeat(ctx context.Context) error {
	var have *coordinationv1.Lease
	retry := wait.Backoff{First: 200 * time.Millisecond, Max: 7 * time.Second}
	for ctx.Err() == nil {
		next, err := n.renew(ctx, have)
		if IsTaken(err) {
			return err
		}
		pause := renewEvery
		if err == nil {
			have, n.renewed = next, true
			retry.Reset()
		} else {
			have = nil // it may have changed, so it is read again
			if ctx.Err() == nil {
				n.log.Error("the Lease of the node cannot be renewed", "node", n.Name, "err", err)
			}
			pause = retry.Next()
		}
		if wait.Sleep(ctx, pause) != nil {
			return nil
		}
	}
	return nil
}

// renew writes the Lease. have is the version written before, or nil.
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

// write creates or updates the Lease.
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
