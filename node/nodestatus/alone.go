package nodestatus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/node/clock"
)

// Two machines must not be the same Node: its addresses would change all the time, and its Pods would run twice. The Lease of a node
// says which agent renews it, and an agent takes over no Node whose Lease another agent renews.

// agentAnnotation is on the Lease of a node and identifies the agent that renews it: the machine, and the data folder on it.
const agentAnnotation = "proa.dev/agent"

// TakenError says that another agent is alive as the node.
type TakenError struct {
	Node string
	// Renewed is when that agent was last seen alive, by its own clock.
	Renewed time.Time
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("Node %q is alive on another machine, or with another data folder: its Lease was renewed at %s. Choose another name with --node NAME. "+
		"To move the node here, stop the other agent and start this one again %d seconds later; \"kubectl delete lease --namespace %s %s\" ends the wait",
		e.Node, e.Renewed.UTC().Format(time.RFC3339), leaseSeconds, corev1.NamespaceNodeLease, e.Node)
}

// agentID identifies an agent by its machine and data folder. It stays the same when the machine or the agent restarts.
func agentID(m Machine, data string) string {
	sum := sha256.Sum256([]byte(m.MachineID + "\x00" + m.SystemUUID + "\x00" + data))
	return hex.EncodeToString(sum[:16])
}

// observeFor is how long the Lease of another agent that looks expired must stay as it is before its node is taken over: the clocks of
// two machines may differ. A live agent renews its Lease in that time.
const observeFor = renewEvery + 2*time.Second

// CheckFree returns a TakenError if another agent is alive as the node that the configuration names. It waits until the server can be
// asked.
func CheckFree(ctx context.Context, c client.Client, config Config, log *slog.Logger) error {
	machine := (&Host{}).Machine()
	own := agentID(machine, config.Data)
	var seen *coordinationv1.Lease
	for wait := firstLook; ; wait = min(2*wait, 7*time.Second) {
		lease, err := leaseOf(ctx, c, config.Name)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			log.ErrorContext(ctx, "the server cannot be asked yet whether another agent is alive as this node", "node", config.Name, "err", err)
			if !clock.Sleep(ctx, wait) {
				return context.Cause(ctx)
			}
			continue
		case lease == nil || !isOthers(ctx, c, lease, own, machine):
			return nil
		case isFresh(lease, time.Now()) || seen != nil && !seen.Spec.RenewTime.Equal(lease.Spec.RenewTime):
			return &TakenError{config.Name, lease.Spec.RenewTime.Time}
		case seen != nil:
			return nil
		}
		seen = lease
		log.InfoContext(ctx, "another agent was this node before; it is taken over unless that agent turns out to be alive", "node", config.Name, "wait", observeFor)
		if !clock.Sleep(ctx, observeFor) {
			return context.Cause(ctx)
		}
	}
}

// leaseOf reads the Lease of a node; nil if there is none, or none that this client may read, as before the node has joined.
func leaseOf(ctx context.Context, c client.Client, name string) (*coordinationv1.Lease, error) {
	o, err := c.Get(ctx, gr.Leases, corev1.NamespaceNodeLease, name, "")
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	lease, ok := o.(*coordinationv1.Lease)
	if err == nil && (!ok || lease.Spec.RenewTime == nil) {
		return nil, nil
	}
	return lease, err
}

// isOthers tells whether the agent that renews a Lease is another one. Kubelets and older agents do not say who they are: then the
// Node's machine must be another one.
func isOthers(ctx context.Context, c client.Client, lease *coordinationv1.Lease, own string, m Machine) bool {
	if agent := lease.Annotations[agentAnnotation]; agent != "" {
		return agent != own
	}
	o, err := c.Get(ctx, gr.Nodes, "", lease.Name, "")
	node, ok := o.(*corev1.Node)
	if err != nil || !ok {
		return false
	}
	info := node.Status.NodeInfo
	return info.SystemUUID != "" && info.SystemUUID != m.SystemUUID || info.MachineID != "" && info.MachineID != m.MachineID
}

// isFresh tells whether a Lease counts now. A time in the far future is that of a wrong clock.
func isFresh(l *coordinationv1.Lease, now time.Time) bool {
	const valid = leaseSeconds * time.Second
	return l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time).Abs() < valid
}

// checkHolder returns a TakenError if another agent has begun to renew the Lease, as after this one was cut off from the server. Before the
// first renewal that may be what an agent has left which has ended; later it is news, whatever time the clock of that agent shows.
func (n *Node) checkHolder(l *coordinationv1.Lease) error {
	agent := l.Annotations[agentAnnotation]
	if agent == "" || agent == n.agent || l.Spec.RenewTime == nil || !n.renewed && !isFresh(l, time.Now()) {
		return nil
	}
	return &TakenError{n.Name, l.Spec.RenewTime.Time}
}

// IsTaken tells whether an error says that another agent is alive as the node.
func IsTaken(err error) bool {
	_, ok := errors.AsType[*TakenError](err)
	return ok
}
