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
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
)

// Two machines must not be the same Node: its addresses would change all the time, and its Pods would run twice. The
// Lease of a node names the agent that renews it, and an agent takes over no Node whose Lease another agent renews.

// agentAnnotation is on the Lease of a node and identifies the agent that renews it: the machine, and the data folder
// on it.
const agentAnnotation = "proa.dev/agent"

// TakenError says that another agent runs as this node.
type TakenError struct {
	Node string
	// Renewed is when that agent last renewed the Lease, by its own clock.
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

// observeFor is how long the Lease of another agent that looks expired must stay unchanged before its node is taken
// over: the clocks of two machines may differ. A live agent renews its Lease in that time.
const observeFor = renewEvery + 2*time.Second

// CheckFree returns a TakenError if another agent runs as the node that the configuration names. It retries until the
// server can be reached.
func CheckFree(ctx context.Context, c client.Client, config Config, log *slog.Logger) error {
	machine, err := (&Host{}).Machine()
	if err != nil {
		return err
	}
	own := agentID(machine, config.Data)
	var seen *coordinationv1.Lease
	retry := wait.Backoff{First: firstRetry, Max: 7 * time.Second}
	for {
		lease, err := leaseOf(ctx, c, config.Name)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			log.ErrorContext(ctx, "the server cannot be asked yet whether another agent runs as this node", "node", config.Name, "err", err)
			if retry.Sleep(ctx) != nil {
				return context.Cause(ctx)
			}
			continue
		case lease == nil || !isOtherAgent(ctx, c, lease, own, machine):
			return nil
		case isValid(lease, time.Now()) || seen != nil && !seen.Spec.RenewTime.Equal(lease.Spec.RenewTime):
			return &TakenError{config.Name, lease.Spec.RenewTime.Time}
		case seen != nil:
			return nil
		}
		seen = lease
		log.InfoContext(ctx, "another agent was this node before; taking over unless it renews its Lease", "node", config.Name, "wait", observeFor)
		if wait.Sleep(ctx, observeFor) != nil {
			return context.Cause(ctx)
		}
	}
}

// leaseOf reads the Lease of a node; nil if there is none, or if this client may not read it, as before the node has
// joined.
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

// isOtherAgent reports whether the agent that renews a Lease is another one. Kubelets and older agents do not identify
// themselves: then it is another one if the Node object is of another machine.
func isOtherAgent(ctx context.Context, c client.Client, lease *coordinationv1.Lease, own string, m Machine) bool {
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

// isValid reports whether a Lease is valid now. A time in the far future comes from a wrong clock and does not count.
func isValid(l *coordinationv1.Lease, now time.Time) bool {
	const valid = leaseSeconds * time.Second
	return l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time).Abs() < valid
}

// checkHolder returns a TakenError if another agent has begun to renew the Lease, as after this one was cut off from
// the server. Before this agent's first renewal the Lease may be left over from an agent that has ended, so it must
// also be valid; later it does not matter what the clock of the other agent says.
func (n *Node) checkHolder(l *coordinationv1.Lease) error {
	agent := l.Annotations[agentAnnotation]
	if agent == "" || agent == n.agent || l.Spec.RenewTime == nil || !n.renewed && !isValid(l, time.Now()) {
		return nil
	}
	return &TakenError{n.Name, l.Spec.RenewTime.Time}
}

// IsTaken reports whether an error says that another agent runs as the node.
func IsTaken(err error) bool {
	_, ok := errors.AsType[*TakenError](err)
	return ok
}
