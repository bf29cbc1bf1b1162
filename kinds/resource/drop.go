package resource

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// prepareClaim drops the fields of disabled features, unless the stored claim uses them.
func prepareClaim(c, old *resourcev1.ResourceClaim) {
	if old == nil || !hasDerivedAttributes(&old.Spec) {
		dropDerivedAttributes(&c.Spec)
	}
}

func prepareTemplate(t, old *resourcev1.ResourceClaimTemplate) {
	if old == nil || !hasDerivedAttributes(&old.Spec.Spec) {
		dropDerivedAttributes(&t.Spec.Spec)
	}
}

func hasDerivedAttributes(s *resourcev1.ResourceClaimSpec) bool {
	for _, r := range s.Devices.Requests {
		if r.Exactly != nil && len(r.Exactly.DerivedAttributes) > 0 {
			return true
		}
		for _, f := range r.FirstAvailable {
			if len(f.DerivedAttributes) > 0 {
				return true
			}
		}
	}
	return false
}

func dropDerivedAttributes(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

// sliceFeatures returns the disabled features of devices: how to detect that one is used, and how to drop it.
func sliceFeatures() []struct {
	used func(*resourcev1.ResourceSliceSpec) bool
	drop func(*resourcev1.ResourceSliceSpec)
} {
	return []struct {
		used func(*resourcev1.ResourceSliceSpec) bool
		drop func(*resourcev1.ResourceSliceSpec)
	}{
		{
			func(s *resourcev1.ResourceSliceSpec) bool {
				return anyDevice(s, func(d *resourcev1.Device) bool {
					for _, c := range d.ConsumesCounters {
						if len(c.CompatibilityGroups) > 0 {
							return true
						}
					}
					return false
				})
			},
			func(s *resourcev1.ResourceSliceSpec) {
				for i := range s.Devices {
					for j := range s.Devices[i].ConsumesCounters {
						s.Devices[i].ConsumesCounters[j].CompatibilityGroups = nil
					}
				}
			},
		},
		{
			func(s *resourcev1.ResourceSliceSpec) bool {
				return anyDevice(s, func(d *resourcev1.Device) bool { return len(d.NodeAllocatableResources) > 0 })
			},
			func(s *resourcev1.ResourceSliceSpec) {
				for i := range s.Devices {
					s.Devices[i].NodeAllocatableResources = nil
				}
			},
		},
		{
			func(s *resourcev1.ResourceSliceSpec) bool {
				return anyDevice(s, func(d *resourcev1.Device) bool {
					for _, a := range d.Attributes {
						if a.BoolValues != nil || a.IntValues != nil || a.StringValues != nil || a.VersionValues != nil {
							return true
						}
					}
					return false
				})
			},
			func(s *resourcev1.ResourceSliceSpec) {
				for i := range s.Devices {
					for name, a := range s.Devices[i].Attributes {
						a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
						s.Devices[i].Attributes[name] = a
					}
				}
			},
		},
		{
			func(s *resourcev1.ResourceSliceSpec) bool { return s.PartitionTypeAttribute != nil },
			func(s *resourcev1.ResourceSliceSpec) { s.PartitionTypeAttribute = nil },
		},
		{
			func(s *resourcev1.ResourceSliceSpec) bool { return len(s.SkipNodeOperations) > 0 },
			func(s *resourcev1.ResourceSliceSpec) { s.SkipNodeOperations = nil },
		},
	}
}

func anyDevice(s *resourcev1.ResourceSliceSpec, is func(*resourcev1.Device) bool) bool {
	for i := range s.Devices {
		if is(&s.Devices[i]) {
			return true
		}
	}
	return false
}

func prepareSlice(s, old *resourcev1.ResourceSlice) {
	for _, f := range sliceFeatures() {
		if old == nil || !f.used(&old.Spec) {
			f.drop(&s.Spec)
		}
	}
}

// allowAdmin allows admin access to devices of others only in namespaces that are labelled for it.
func allowAdmin(ctx context.Context, d kind.Server, namespace string, path *field.Path) field.ErrorList {
	o, err := d.Get(ctx, corev1.Resource("namespaces"), "", namespace)
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if o.GetLabels()[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey))}
	}
	return nil
}

func allowRequests(ctx context.Context, d kind.Server, requests []resourcev1.DeviceRequest, namespace string) field.ErrorList {
	for i, r := range requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return allowAdmin(ctx, d, namespace, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
		}
	}
	return nil
}

func allowClaim(ctx context.Context, d kind.Server, c, old *resourcev1.ResourceClaim) field.ErrorList {
	if old != nil {
		return nil // the spec is immutable
	}
	return allowRequests(ctx, d, c.Spec.Devices.Requests, c.Namespace)
}

func allowTemplate(ctx context.Context, d kind.Server, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	if old != nil {
		return nil
	}
	return allowRequests(ctx, d, t.Spec.Spec.Devices.Requests, t.Namespace)
}

// adminResult returns the index of the first device that was allocated for admin access.
func adminResult(c *resourcev1.ResourceClaim) int {
	if c.Status.Allocation != nil {
		for i, r := range c.Status.Allocation.Devices.Results {
			if r.AdminAccess != nil && *r.AdminAccess {
				return i
			}
		}
	}
	return -1
}

func allowAdminResult(ctx context.Context, d kind.Server, c, old *resourcev1.ResourceClaim) field.ErrorList {
	i := adminResult(c)
	if i < 0 || adminResult(old) >= 0 {
		return nil
	}
	return allowAdmin(ctx, d, c.Namespace, field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
}
