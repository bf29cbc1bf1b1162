package schedule

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"

	"proa.dev/kinds/kind"
)

// NodeDeclaredFeatures lets a pod only onto nodes that say they can do what its spec asks for.
func NodeDeclaredFeatures() Plugin {
	lacking := NotEver("node(s) didn't match Pod's required features")
	release := version.MajorMinor(1, 37)
	needs := func(pod *corev1.Pod) (features.FeatureSet, error) {
		return features.DefaultFramework.InferForPodScheduling(&features.PodInfo{Spec: &pod.Spec}, release)
	}
	return Plugin{
		Name: "NodeDeclaredFeatures",
		Wakes: []Wake{
			{On: NodeResource, Do: Add | NodeFeature},
			{On: TargetPod, Do: Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				a, err := needs(was.(*corev1.Pod))
				b, err2 := needs(is.(*corev1.Pod))
				return err != nil || err2 != nil || !a.Equal(b)
			}},
		},
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			wants, err := needs(p.Pod)
			if err != nil {
				return Prepared{Reject: Failed(err)}
			}
			if wants.IsEmpty() {
				return Silent()
			}
			return Prepared{Reuse: WhileNode, Filter: func(n *NodeInfo) *Verdict {
				has, err := wants.IsSubset(features.DefaultFramework.TryMap(n.Node.Status.DeclaredFeatures))
				if err != nil {
					return Failed(err)
				}
				if !has {
					return lacking
				}
				return nil
			}}
		},
	}
}
