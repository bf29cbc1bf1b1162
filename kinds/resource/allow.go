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

// updateVerbs returns the verbs of requests that change an object. The request's own verb is not known here, so permission
// for either is enough.
func updateVerbs() []string { return []string{"update", "patch"} }

// nodeKey is the extra of a user authenticated by the token of a pod that names the pod's node.
const nodeKey = "authentication.kubernetes.io/node-name"

// allowClaimStatus lets only schedulers allocate devices, and only drivers report the status of theirs.
func allowClaimStatus(ctx context.Context, d kind.Server, c, old *resourcev1.ResourceClaim) field.ErrorList {
	status := field.NewPath("status")
	errs := allowAdminResult(ctx, d, c, old)
	is, was := &c.Status, &old.Status
	if !equality.Semantic.DeepEqual(is.Allocation, was.Allocation) || !equality.Semantic.DeepEqual(is.ReservedFor, was.ReservedFor) {
		if err := checkPermission(ctx, d, updateVerbs(),
			authorizationv1.ResourceAttributes{Subresource: resourcev1.SubresourceBinding}); err != nil {
			errs = append(errs, field.Forbidden(status.Child("allocation"),
				fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, updateVerbs()[0], err)))
		}
	}
	if is.Allocation == nil {
		return errs
	}
	prefixes := []string{resourcev1.VerbPrefixArbitraryNode}
	if isOnNode(d.User(), allocatedNode(is.Allocation)) {
		prefixes = []string{resourcev1.VerbPrefixAssociatedNode, resourcev1.VerbPrefixArbitraryNode}
	}
	var verbs, shown []string
	for _, p := range prefixes {
		shown = append(shown, p+updateVerbs()[0])
		for _, w := range updateVerbs() {
			verbs = append(verbs, p+w)
		}
	}
	for _, driver := range changedDrivers(is.Devices, was.Devices) {
		if err := checkPermission(ctx, d, verbs,
			authorizationv1.ResourceAttributes{Subresource: resourcev1.SubresourceDriver, Namespace: c.Namespace,
				Name: driver}); err != nil {
			errs = append(errs, field.Forbidden(status.Child("devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, shown, err)))
		}
	}
	return errs
}

// checkPermission returns nil if the user has permission for one of the verbs, or an error that names the first.
func checkPermission(ctx context.Context, d kind.Server, verbs []string, a authorizationv1.ResourceAttributes) error {
	u := d.User()
	a.Group, a.Version, a.Resource = resourcev1.GroupName, "v1", "resourceclaims"
	spec := kind.AccessReview(u, &a)
	for _, a.Verb = range verbs {
		if d.ReviewAccess(ctx, spec).Allowed {
			return nil
		}
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", u.GetName(), verbs[0], a.Resource+"/"+a.Subresource, a.Group,
		where)
	return apierrors.NewForbidden(resourcev1.Resource(a.Resource), a.Name, errors.New(text))
}

// changedDrivers returns the drivers of the devices whose status has changed.
func changedDrivers(is, was []resourcev1.AllocatedDeviceStatus) []string {
	before := map[device]resourcev1.AllocatedDeviceStatus{}
	for _, s := range was {
		before[reportedDevice(&s)] = s
	}
	drivers := map[string]bool{}
	for _, s := range is {
		key := reportedDevice(&s)
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

// allocatedNode returns the only node on which the allocated devices can be used; empty if there are several.
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

// isOnNode reports whether the user is the service account of a pod on the node.
func isOnNode(u user.Info, node string) bool {
	nodes := u.GetExtra()[nodeKey]
	return node != "" && strings.HasPrefix(u.GetName(), "system:serviceaccount:") && len(nodes) == 1 && nodes[0] == node
}
