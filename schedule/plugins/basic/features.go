package basic

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// NodeDeclaredFeatures rejects nodes that do not declare the features that the spec of the Pod needs.
func NodeDeclaredFeatures() framework.Plugin {
	lacking := framework.Unresolvable("node(s) didn't match Pod's required features")
	release := version.MajorMinor(1, 37)
	needs := func(pod *corev1.Pod) (features.FeatureSet, error) {
		return features.DefaultFramework.InferForPodScheduling(&features.PodInfo{Spec: &pod.Spec}, release)
	}
	return framework.Plugin{
		Name: "NodeDeclaredFeatures",
		QueueingHints: []framework.QueueingHint{
			{On: framework.NodeResource, Do: framework.Add | framework.NodeFeature},
			{On: framework.TargetPod, Do: framework.Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				a, err := needs(was.(*corev1.Pod))
				b, err2 := needs(is.(*corev1.Pod))
				return err != nil || err2 != nil || !a.Equal(b)
			}},
		},
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			wants, err := needs(p.Pod)
			if err != nil {
				return framework.Prepared{Reject: framework.Failed(err)}
			}
			if wants.IsEmpty() {
				return framework.Skip()
			}
			return framework.Prepared{Reuse: framework.ReuseWhileNodeUnchanged, Filter: func(n *framework.NodeInfo) *framework.Rejection {
				has, err := wants.IsSubset(features.DefaultFramework.TryMap(n.Node.Status.DeclaredFeatures))
				if err != nil {
					return framework.Failed(err)
				}
				if !has {
					return lacking
				}
				return nil
			}}
		},
	}
}
