package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/placement"
)

// fit tells on which nodes the Pods of a set belong. What is the same for every node is worked out once.
type fit struct {
	node        string // the only one, if the template names it
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func fitOf(ds *appsv1.DaemonSet) *fit {
	spec := &ds.Spec.Template.Spec
	return &fit{
		node:        spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: tolerations(spec),
	}
}

// on says whether a Pod should run on a node, and whether one that is there already may stay: a taint that only keeps
// new Pods away does not drive old ones out.
func (f *fit) on(node *corev1.Node) (run, stay bool) {
	if f.node != "" && f.node != node.Name {
		return false, false
	}
	if ok, _ := f.affinity.Match(node); !ok { // what cannot be read matches nothing
		return false, false
	}
	stay = f.tolerated(node, corev1.TaintEffectNoExecute)
	return stay && f.tolerated(node, corev1.TaintEffectNoSchedule), stay
}

// tolerated says that no taint of an effect keeps the Pods from a node.
func (f *fit) tolerated(node *corev1.Node, effect corev1.TaintEffect) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == effect && !slices.ContainsFunc(f.tolerations, func(t corev1.Toleration) bool { return placement.Tolerates(&t, taint) }) {
			return false
		}
	}
	return true
}

// tolerations are those of a template and those that every Pod of a DaemonSet has: what a set runs belongs to the node,
// in good days and bad.
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		want := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		same := false
		for i := range out {
			if want.MatchToleration(&out[i]) { // it may have been for some seconds only
				out[i], same = want, true
			}
		}
		if !same {
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
