package resource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// writes are the verbs of a request that may have brought a change. A door does not say which one it was, so either will do.
func writes() []string { return []string{"update", "patch"} }

// nodeKey is where the user of a pod's token says which node the pod is on.
const nodeKey = "authentication.kubernetes.io/node-name"

// allowClaimStatus lets only schedulers hand out devices and only drivers report about theirs.
func allowClaimStatus(ctx context.Context, d kind.Door, c, old *resourcev1.ResourceClaim) field.ErrorList {
	status := field.NewPath("status")
	errs := allowAdminResult(ctx, d, c, old)
	is, was := &c.Status, &old.Status
	if !equality.Semantic.DeepEqual(is.Allocation, was.Allocation) || !equality.Semantic.DeepEqual(is.ReservedFor, was.ReservedFor) {
		if err := may(ctx, d, writes(), authorizationv1.ResourceAttributes{Subresource: resourcev1.SubresourceBinding}); err != nil {
			errs = append(errs, field.Forbidden(status.Child("allocation"),
				fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, writes()[0], err)))
		}
	}
	if is.Allocation == nil {
		return errs
	}
	prefixes := []string{resourcev1.VerbPrefixArbitraryNode}
	if onNode(d.User(), allocatedNode(is.Allocation)) {
		prefixes = []string{resourcev1.VerbPrefixAssociatedNode, resourcev1.VerbPrefixArbitraryNode}
	}
	var verbs, shown []string
	for _, p := range prefixes {
		shown = append(shown, p+writes()[0])
		for _, w := range writes() {
			verbs = append(verbs, p+w)
		}
	}
	for _, driver := range changedDrivers(is.Devices, was.Devices) {
		if err := may(ctx, d, verbs, authorizationv1.ResourceAttributes{Subresource: resourcev1.SubresourceDriver, Namespace: c.Namespace, Name: driver}); err != nil {
			errs = append(errs, field.Forbidden(status.Child("devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, shown, err)))
		}
	}
	return errs
}

// may returns nil when the user has one of the verbs, or says that the first is missing.
func may(ctx context.Context, d kind.Door, verbs []string, a authorizationv1.ResourceAttributes) error {
	u := d.User()
	a.Group, a.Version, a.Resource = resourcev1.GroupName, "v1", "resourceclaims"
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{}, ResourceAttributes: &a}
	for key, values := range u.GetExtra() {
		spec.Extra[key] = values
	}
	for _, a.Verb = range verbs {
		if d.ReviewAccess(ctx, spec).Allowed {
			return nil
		}
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", u.GetName(), verbs[0], a.Resource+"/"+a.Subresource, a.Group, where)
	return apierrors.NewForbidden(resourcev1.Resource(a.Resource), a.Name, errors.New(text))
}

// changedDrivers are the drivers of devices about which something else is said than before.
func changedDrivers(is, was []resourcev1.AllocatedDeviceStatus) []string {
	before := map[device]resourcev1.AllocatedDeviceStatus{}
	for _, s := range was {
		before[reported(&s)] = s
	}
	drivers := map[string]bool{}
	for _, s := range is {
		key := reported(&s)
		if old, ok := before[key]; !ok || !equality.Semantic.DeepEqual(old, s) {
			drivers[s.Driver] = true
		}
		delete(before, key)
	}
	for _, s := range before {
		drivers[s.Driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// allocatedNode is the one node on which the devices can be used; empty if there are several.
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// onNode says whether the user is the service account of a pod on the node.
func onNode(u user.Info, node string) bool {
	nodes := u.GetExtra()[nodeKey]
	return node != "" && strings.HasPrefix(u.GetName(), "system:serviceaccount:") && len(nodes) == 1 && nodes[0] == node
}
