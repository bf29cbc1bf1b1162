package node

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/podstate"
)

// The methods of this file call a part of the agent on behalf of a part that is built before it. They must not be called
// before Start has returned.

// wakePod makes the worker of a Pod reconcile.
func (a *Agent) wakePod(uid types.UID) { a.pods.Wake(uid) }

// wakePods makes the workers of several Pods reconcile.
func (a *Agent) wakePods(all []types.UID) {
	for _, uid := range all {
		a.pods.Wake(uid)
	}
}

// isHere reports whether a Pod has a worker on this node.
func (a *Agent) isHere(uid types.UID) bool {
	_, here := a.pods.Find(uid)
	return here
}

// endPod ends a Pod as failed.
func (a *Agent) endPod(uid types.UID, v *podstate.Termination) { a.pods.End(uid, v) }

// pressure reports whether the node has a pressure condition, and what is short.
func (a *Agent) pressure(t corev1.NodeConditionType) (shortage string, is bool) {
	return a.evictor.Pressure(t)
}

// refreshNode updates the status of the Node now.
func (a *Agent) refreshNode() { a.node.Refresh() }

// renewCertificate makes the agent request a serving certificate for the node's new addresses.
func (a *Agent) renewCertificate() { a.cert.Recheck() }

// volumesInUse returns the attachable volumes that the node uses.
func (a *Agent) volumesInUse() ([]corev1.UniqueVolumeName, bool) { return a.volumes.InUse(), true }

// volumeGroups returns the supplemental groups that the volumes of a Pod ask for.
func (a *Agent) volumeGroups(p *corev1.Pod) []int64 { return a.volumes.Groups(p) }

// firstIP returns the first address of the node, the zero address if there is none.
func (a *Agent) firstIP() netip.Addr {
	if ips := a.nodeIPs(); len(ips) > 0 {
		return ips[0]
	}
	return netip.Addr{}
}
