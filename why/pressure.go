package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/placement"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// shortages returns what a node lacks, by the condition that says so, and what to do about it. Who tolerates the taint of such a node
// makes it worse.
func shortages() []shortage {
	return []shortage{
		{corev1.NodeMemoryPressure, "short of memory", []string{
			`"kubectl top pods -A --sort-by=memory" shows which Pods use it; end programs, or give the machine more`,
			"the threshold is memory.available in --eviction-hard; requests and limits that cover what containers use keep a node from running short"}},
		{corev1.NodeDiskPressure, "short of disk space", []string{
			`free space on the machine: "df -h" shows which filesystem is full, "du -xh --max-depth=2 / | sort -h | tail" what uses it`,
			"nodefs has logs, volumes and the writable layers of containers, imagefs the images; the node has deleted images and containers that nothing uses",
			"the thresholds are nodefs.available and imagefs.available in --eviction-hard; the condition ends 5 minutes after they are kept again"}},
		{corev1.NodePIDPressure, "short of process IDs", []string{
			`end processes on the machine: "ps -eLf" lists them with their threads; the threshold is pid.available in --eviction-hard`}},
		{corev1.NodeNetworkUnavailable, "without a network", []string{
			"proa logs NODE, or the log of the network's own agent on that machine, says why the network is not set up"}},
	}
}

// shortage is something that a node lacks.
type shortage struct {
	condition corev1.NodeConditionType
	is        string // as in "the node is short of memory"
	advice    []string
}

// nodeShortage returns the first condition that says that a node lacks something, and what that is; nil if none does.
func nodeShortage(n *corev1.Node) (*corev1.NodeCondition, shortage) {
	for _, s := range shortages() {
		if c := nodeCondition(n, s.condition); c != nil && c.Status == corev1.ConditionTrue {
			return c, s
		}
	}
	return nil, shortage{}
}

func isShort(n *corev1.Node) bool { c, _ := nodeShortage(n); return c != nil }

// addShortage makes an answer say what a node lacks.
func addShortage(a *Answer, n *corev1.Node, c *corev1.NodeCondition, s shortage) *Answer {
	follows := "takes no further Pods and may evict those that it runs"
	if s.condition == corev1.NodeNetworkUnavailable {
		follows = "and takes no further Pods"
	}
	a.Cause = fmt.Sprintf("The node %s is %s, %s: %s.", n.Name, s.is, follows, answer.Sentence(c.Message))
	a.Because(a.Object, "status.conditions["+string(c.Type)+"]", string(c.Status)+" "+c.Reason+": "+c.Message, c.LastTransitionTime.Time)
	for _, text := range s.advice {
		a.Do("%s", strings.Replace(text, "NODE", n.Name, 1))
	}
	return a
}

// faultTaint is a taint that the cluster itself sets while something is wrong with a node, and takes away again. A Pod that tolerates it
// would get the node with its fault.
type faultTaint struct {
	key, is string // as in "the node is cordoned"
	advice  string // NODE stands for the name of the node
}

// faultTaints lists the taints of nodes with a fault.
func faultTaints() []faultTaint {
	const mend = "proa why node/NODE says what is wrong with the node; the taint goes when that is mended"
	return []faultTaint{
		{corev1.TaintNodeDiskPressure, "short of disk space", mend},
		{corev1.TaintNodeMemoryPressure, "short of memory", mend},
		{corev1.TaintNodePIDPressure, "short of process IDs", mend},
		{corev1.TaintNodeNetworkUnavailable, "without a network", mend},
		{corev1.TaintNodeNotReady, "not ready", mend},
		{corev1.TaintNodeUnreachable, "unreachable", mend},
		{corev1.TaintNodeUnschedulable, "cordoned", "kubectl uncordon NODE"},
		{corev1.TaintNodeOutOfService, "marked as out of service",
			"when the machine is back and well: kubectl taint nodes NODE " + corev1.TaintNodeOutOfService + "-"},
		{"node.cloudprovider.kubernetes.io/uninitialized", "not initialized by its cloud provider",
			"the cloud controller manager takes that taint away; check whether it runs"},
		{"node.cloudprovider.kubernetes.io/shutdown", "shut down", "start the machine of node NODE again"},
	}
}

// addTaintAdvice explains a Pod that nodes reject for their taints: of nodes with a fault, the fault is the cause and to be mended; only
// for taints that somebody has set for a purpose a toleration helps.
func (r *reader) addTaintAdvice(ctx context.Context, p *corev1.Pod, a *Answer) {
	nodes, seen := lookup.List[corev1.Node](ctx, r.Reader, gr.Nodes, "", "")
	if !seen {
		a.Do("the taints of the nodes cannot be read: one of node.kubernetes.io goes when what is wrong with its node is mended, for others add a toleration")
		return
	}
	faulty, chosen := map[string][]string{}, false // the nodes by their fault; whether others have a taint
	total := 0
	for i := range nodes {
		n := &nodes[i]
		taints := untolerated(p, n)
		at := slices.IndexFunc(faultTaints(), func(f faultTaint) bool {
			return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == f.key })
		})
		if at < 0 {
			chosen = chosen || len(taints) > 0
			continue
		}
		fault := faultTaints()[at]
		faulty[fault.is] = append(faulty[fault.is], n.Name)
		if total++; total > 1 {
			continue // the first stands for all
		}
		a.Because(nodeRef(n), "spec.taints", fault.key, time.Time{}).Do("%s", strings.Replace(fault.advice, "NODE", n.Name, 1))
		if bad := r.nodeProblem(ctx, n); bad != nil {
			bad.State, a.Through = Stuck, bad
		}
	}
	if total > 0 {
		var parts []string
		for _, f := range faultTaints() {
			if names := faulty[f.is]; len(names) > 0 {
				parts = append(parts, describeFaulty(names, len(nodes), f.is))
			}
		}
		text := strings.Join(parts, ", ")
		if total == len(nodes) {
			a.Cause = "No node can take the Pod: " + text + "."
		} else {
			a.Cause = strings.TrimSuffix(a.Cause, ".") + "; " + text + "."
		}
	}
	if chosen || total == 0 {
		a.Do("add a toleration to the Pod, or remove the taint: kubectl taint nodes NODE KEY-")
	}
}

// describeFaulty says how many of all nodes have a fault.
func describeFaulty(names []string, all int, fault string) string {
	switch {
	case len(names) == 1:
		return "node " + names[0] + " is " + fault
	case len(names) == all && all == 2:
		return "both nodes are " + fault
	case len(names) == all:
		return fmt.Sprintf("all %s are %s", answer.Plural(all, "node"), fault)
	}
	return fmt.Sprintf("%d of %s are %s", len(names), answer.Plural(all, "node"), fault)
}

// untolerated returns the taints of a node for which it takes no Pod like this one.
func untolerated(p *corev1.Pod, n *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectPreferNoSchedule ||
			slices.ContainsFunc(p.Spec.Tolerations, func(have corev1.Toleration) bool { return placement.Tolerates(&have, &t) })
	})
}
