package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/lib/placement"
)

// nodeFit decides which nodes are eligible for the Pods of a set. What does not depend on the node is computed once.
type nodeFit struct {
	node        string // the only one, if the template names it
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func newNodeFit(ds *appsv1.DaemonSet) *nodeFit {
	spec := &ds.Spec.Template.Spec
	return &nodeFit{
		node:        spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: tolerations(spec),
	}
}

// on reports whether a Pod should run on a node, and whether a running one may stay: a NoSchedule taint keeps only new Pods
// away.
func (f *nodeFit) on(node *corev1.Node) (run, stay bool) {
	if f.node != "" && f.node != node.Name {
		return false, false
	}
	if ok, _ := f.affinity.Match(node); !ok { // an invalid affinity matches no node
		return false, false
	}
	stay = f.tolerated(node, corev1.TaintEffectNoExecute)
	return stay && f.tolerated(node, corev1.TaintEffectNoSchedule), stay
}

// tolerated reports whether no taint of an effect keeps the Pods from a node.
func (f *nodeFit) tolerated(node *corev1.Node, effect corev1.TaintEffect) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == effect && !slices.ContainsFunc(f.tolerations,
			func(t corev1.Toleration) bool { return placement.Tolerates(&t, taint) }) {
			return false
		}
	}
	return true
}

// tolerations returns the tolerations of a template and those that every Pod of a DaemonSet has, so that it runs on nodes
// that are not ready or under pressure too.
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		want := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		replaced := false
		for i := range out {
			if want.MatchToleration(&out[i]) { // that one may have a time limit
				out[i], replaced = want, true
			}
		}
		if !replaced {
			out = append(out, want)
		}
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return out
}
