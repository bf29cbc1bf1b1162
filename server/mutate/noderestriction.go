package mutate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/nodeaddress"
)

// nodeRestriction limits a node to its own Node, the pods that run on it, and what these need. It is part of hop 4,
// because a write that a node must not make is rejected, even where hop 5 would only drop the field. The addresses that
// a node claims are checked against facts.
func nodeRestriction(facts NodeFacts) func(ctx context.Context, a *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error { return restrictNode(ctx, a, facts) }
}

func restrictNode(ctx context.Context, a *kind.Admission, facts NodeFacts) error {
	node, isNode := nodeOf(a.User)
	if !isNode {
		return forbidMirrorPods(a)
	}
	if a.Verb != "create" && a.Verb != "update" && a.Verb != "delete" {
		return nil
	}
	if node == "" {
		return a.Forbidf("could not determine node from user %q", a.User.GetName())
	}
	switch a.Def.Resource() {
	case schema.GroupResource{Resource: "pods"}:
		if err := restrictPod(ctx, a, node); err != nil {
			return err
		}
		return restrictPodAddresses(ctx, a, facts)
	case schema.GroupResource{Resource: "nodes"}:
		if err := restrictNodeObject(a, node); err != nil {
			return err
		}
		return restrictAddresses(ctx, a, facts)
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		if a.Sub != "status" {
			return a.Forbidf("may only update PVC status")
		}
		return restrictClaimStatus(a, node)
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return restrictToken(ctx, a, node)
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}:
		return restrictPodCertificate(ctx, a, node)
	case schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}:
		if a.Namespace != corev1.NamespaceNodeLease {
			return a.Forbidf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		}
		if a.Name != node {
			return a.Forbidf("can only access node lease with the same name as the requesting node")
		}
	case schema.GroupResource{Group: storagev1.GroupName, Resource: "csinodes"}:
		if a.Name != node {
			return a.Forbidf("can only access CSINode with the same name as the requesting node")
		}
		if a.Sub == "status" {
			return a.Forbidf("CSIVolumeHealth feature gate is disabled")
		}
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}:
		return restrictResourceSlice(a, node)
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}:
		return restrictCertificate(a, node)
	}
	return nil
}

// nodeOf returns the name of the node whose agent a user is.
func nodeOf(u user.Info) (string, bool) {
	name, ok := strings.CutPrefix(u.GetName(), "system:node:")
	return name, ok && slices.Contains(u.GetGroups(), user.NodesGroup)
}

// operation returns the verb in the form that error messages have.
func operation(a *kind.Admission) string { return strings.ToUpper(a.Verb) }

// restrictResourceSlice lets a node publish its own devices only.
func restrictResourceSlice(a *kind.Admission, node string) error {
	var slice *resourcev1.ResourceSlice
	switch a.Verb {
	case "create":
		slice, _ = a.Object.(*resourcev1.ResourceSlice)
	case "delete":
		slice, _ = a.Old.(*resourcev1.ResourceSlice)
	default:
		return nil // hop 3 has checked the stored one
	}
	if slice == nil || slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return a.Forbidf("can only %s ResourceSlice with the same NodeName as the requesting node", a.Verb)
	}
	return nil
}

// restrictNodeObject lets a node describe itself, but not in a way that attracts pods which should not run on it.
func restrictNodeObject(a *kind.Admission, node string) error {
	if a.Name != node {
		return a.Forbidf("node %q is not allowed to modify node %q", node, a.Name)
	}
	n, ok := a.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	if a.Verb == "create" {
		if n.Spec.ConfigSource != nil {
			return a.Forbidf("node %q is not allowed to create pods with a non-nil configSource", node)
		}
		if bad := forbiddenLabels(n.Labels, nil); len(bad) > 0 {
			return a.Forbidf("node %q is not allowed to set the following labels: %s", node, strings.Join(bad, ", "))
		}
		if _, set := n.Annotations[nodeaddress.Annotation]; set {
			return a.Forbidf("node %q is not allowed to set the annotation %s: administrators say with it which addresses the node may have", node, nodeaddress.Annotation)
		}
		return restrictPodCIDRs(a, n, nil)
	}
	old, ok := a.Old.(*corev1.Node)
	if !ok {
		return a.Forbidf("unexpected type %T", a.Old)
	}
	if err := checkNodeUpdate(n, old); err != nil {
		return a.Forbid(err)
	}
	return restrictPodCIDRs(a, n, old)
}

// checkNodeUpdate checks an update of a Node by the node itself.
func checkNodeUpdate(n, old *corev1.Node) error {
	switch {
	case n.Spec.ConfigSource != nil && !equal(n.Spec.ConfigSource, old.Spec.ConfigSource):
		return fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", old.Name)
	case !equal(n.Spec.Taints, old.Spec.Taints):
		return fmt.Errorf("node %q is not allowed to modify taints", old.Name)
	case !equal(n.OwnerReferences, old.OwnerReferences):
		return fmt.Errorf("node %q is not allowed to modify ownerReferences", old.Name)
	}
	word, set := n.Annotations[nodeaddress.Annotation]
	if had, was := old.Annotations[nodeaddress.Annotation]; word != had || set != was {
		return fmt.Errorf("node %q is not allowed to modify the annotation %s: administrators say with it which addresses the node may have", old.Name, nodeaddress.Annotation)
	}
	if bad := forbiddenLabels(n.Labels, old.Labels); len(bad) > 0 {
		return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(bad, ", "))
	}
	return nil
}

// forbiddenLabels returns the changed labels that a node may not set: those reserved for administrators, and those of
// Kubernetes that do not describe what a node knows of itself.
func forbiddenLabels(labels, old map[string]string) (bad []string) {
	check := func(key string) {
		domain, _, _ := strings.Cut(key, "/")
		within := func(tree string) bool { return domain == tree || strings.HasSuffix(domain, "."+tree) }
		if !strings.Contains(key, "/") {
			return
		}
		if within(corev1.LabelNamespaceNodeRestriction) || (within("kubernetes.io") || within("k8s.io")) && !isNodeLabel(key, within) {
			bad = append(bad, key)
		}
	}
	for key, value := range labels {
		if was, ok := old[key]; !ok || was != value {
			check(key)
		}
	}
	for key := range old {
		if _, ok := labels[key]; !ok {
			check(key)
		}
	}
	slices.Sort(bad)
	return bad
}

func isNodeLabel(key string, within func(string) bool) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	}
	return within(corev1.LabelNamespaceSuffixKubelet) || within(corev1.LabelNamespaceSuffixNode)
}
