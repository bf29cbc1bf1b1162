package resource

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// ResourceClaims request devices.
func ResourceClaims(h Hooks) *kind.Def {
	type claim = resourcev1.ResourceClaim
	return kind.Define(kind.Resource[claim]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: resourcev1.GroupName, Version: "v1", Kind: "ResourceClaim"},
			Plural:           "resourceclaims",
			Older:            append(kind.SameLayout("v1beta2"), kind.Older("v1beta1", claimFromV1beta1)),
			AllowFirst:       true,
		},
		Spec:     func(c *claim) any { return &c.Spec },
		Status:   func(c *claim) any { return &c.Status },
		Delete:   kind.Deletion[claim]{ReturnsObject: true},
		Default:  defaultClaim,
		Prepare:  prepareClaim,
		Validate: h.validateClaim,
		Allow:    allowClaim,
		Subs: []kind.Sub[claim]{{
			Name:  "status",
			Reset: []string{"metadata", "spec"},
			Prepare: func(c, old *claim) {
				metav1.ResetObjectMetaForStatus(c, old)
				prepareClaimStatus(c, old)
			},
			Validate: validateClaimStatus,
			Allow:    allowClaimStatus,
		}},
		Columns: []kind.Column[claim]{
			kind.NameColumn[claim](),
			{Name: "State", Description: "A summary of the current state (allocated, pending, reserved, etc.).",
				Value: func(c *claim) any { return claimState(c) }},
			kind.AgeColumn[claim](),
		},
	})
}

func defaultClaim(c *resourcev1.ResourceClaim) {
	defaultSpec(&c.Spec)
	if c.Status.Allocation != nil {
		for i := range c.Status.Allocation.Devices.Results {
			defaultTolerations(c.Status.Allocation.Devices.Results[i].Tolerations)
		}
	}
}

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}
