package schedule

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule/framework"
)

// nominations has the Pods that are nominated for a node, usually because Pods are being preempted for them there.
type nominations struct {
	nodes map[types.UID]string
	pods  map[string][]*framework.PodInfo
}

func newNominations() nominations {
	return nominations{nodes: map[types.UID]string{}, pods: map[string][]*framework.PodInfo{}}
}

// nodeOf returns the node that a Pod is nominated for, or "".
func (n *nominations) nodeOf(uid types.UID) string { return n.nodes[uid] }

// set sets the node that a Pod is nominated for; "" removes the nomination.
func (n *nominations) set(s *framework.State, p *framework.PodInfo, node string) {
	uid := p.Pod.UID
	was := n.nodes[uid]
	if was == "" && node == "" {
		return
	}
	if was != "" {
		n.pods[was] = slices.DeleteFunc(slices.Clone(n.pods[was]), func(q *framework.PodInfo) bool { return q.Pod.UID == uid })
		if len(n.pods[was]) == 0 {
			delete(n.pods, was)
		}
		delete(n.nodes, uid)
		n.publish(s, was)
	}
	if node != "" {
		n.nodes[uid] = node
		n.pods[node] = append(slices.Clip(n.pods[node]), p)
		n.publish(s, node)
	}
}

// publish passes the Pods that are nominated for a node to the state.
func (n *nominations) publish(s *framework.State, node string) { s.Nominate(node, n.pods[node]) }
