package schedule

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// nominations are the pods for which room is being made, with their nodes.
type nominations struct {
	nodes map[types.UID]string
	pods  map[string][]*PodInfo
}

func newNominations() nominations {
	return nominations{nodes: map[types.UID]string{}, pods: map[string][]*PodInfo{}}
}

// of is the node a pod waits for, or "".
func (n *nominations) of(uid types.UID) string { return n.nodes[uid] }

// set says that a pod waits for a node, or with "" for none.
func (n *nominations) set(s *State, p *PodInfo, node string) {
	uid := p.Pod.UID
	was := n.nodes[uid]
	if was == "" && node == "" {
		return
	}
	if was != "" {
		n.pods[was] = slices.DeleteFunc(slices.Clone(n.pods[was]), func(q *PodInfo) bool { return q.Pod.UID == uid })
		if len(n.pods[was]) == 0 {
			delete(n.pods, was)
		}
		delete(n.nodes, uid)
		n.tell(s, was)
	}
	if node != "" {
		n.nodes[uid] = node
		n.pods[node] = append(slices.Clip(n.pods[node]), p)
		n.tell(s, node)
	}
}

// tell passes on who waits for a node.
func (n *nominations) tell(s *State, node string) { s.Nominate(node, n.pods[node]) }
