package volumekind

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/volumesource"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
	"proa.dev/kinds/lib/resourcename"
)

// PersistentVolumeClaims ask for storage.
func PersistentVolumeClaims() *kind.Def {
	doc, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	type claim = corev1.PersistentVolumeClaim
	return kind.Define(kind.Resource[claim]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, Plural: "persistentvolumeclaims",
			Short: []string{"pvc"},
		},
		Spec:     func(c *claim) any { return &c.Spec },
		Status:   func(c *claim) any { return &c.Status },
		Default:  DefaultClaim,
		Prepare:  prepareClaim,
		Validate: validateClaim,
		Delete:   kind.Deletion[claim]{ReturnsObject: true},
		Warn:     func(c, _ *claim) []string { return claimWarnings(c) },
		Columns: []kind.Column[claim]{
			kind.NameColumn[claim](),
			{Name: "Status", Description: status["phase"], Value: func(c *claim) any {
				if c.DeletionTimestamp != nil {
					return "Terminating"
				}
				return string(c.Status.Phase)
			}},
			{Name: "Volume", Description: doc["volumeName"], Value: func(c *claim) any { return c.Spec.VolumeName }},
			{Name: "Capacity", Description: status["capacity"], Value: func(c *claim) any {
				if c.Spec.VolumeName == "" {
					return ""
				}
				size := c.Status.Capacity[corev1.ResourceStorage]
				return size.String()
			}},
			{Name: "Access Modes", Description: status["accessModes"], Value: func(c *claim) any {
				if c.Spec.VolumeName == "" {
					return ""
				}
				return accessModesText(c.Status.AccessModes)
			}},
			{Name: "StorageClass", Description: "StorageClass of the pvc", Value: func(c *claim) any {
				if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
					return class
				}
				return ptr.Deref(c.Spec.StorageClassName, "")
			}},
			{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pvc",
				Value: func(c *claim) any { return orUnset(c.Spec.VolumeAttributesClassName) }},
			kind.AgeColumn[claim](),
			{Name: "VolumeMode", Wide: true, Description: doc["volumeMode"],
				Value: func(c *claim) any { return orUnset(c.Spec.VolumeMode) }},
		},
		Subs: []kind.Sub[claim]{{Name: "status", Prepare: func(c, old *claim) {
			if old.Status.HealthStatus == nil {
				c.Status.HealthStatus = nil
			}
		}, Validate: validateClaimStatus}},
	})
}

// accessModesText returns the short names of access modes in their usual order.
func accessModesText(modes []corev1.PersistentVolumeAccessMode) string {
	var names []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		name string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			names = append(names, m.name)
		}
	}
	return strings.Join(names, ",")
}

func orUnset[S ~string](s *S) string {
	if s == nil {
		return "<unset>"
	}
	return string(*s)
}

// DefaultClaim sets the defaults of a claim.
func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	defaulting.IfZero(&c.Status.Phase, corev1.ClaimPending)
	defaulting.IfNil(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	for _, list := range []corev1.ResourceList{c.Spec.Resources.Limits, c.Spec.Resources.Requests, c.Status.Capacity,
		c.Status.AllocatedResources} {
		defaulting.RoundUp(list)
	}
}

// prepareClaim makes dataSource and dataSourceRef agree: older clients set the first, newer ones the second. A
// dataSource alone that is neither a claim nor a snapshot is ignored.
func prepareClaim(c, old *corev1.PersistentVolumeClaim) {
	s := &c.Spec
	if r := s.DataSourceRef; r != nil && ptr.Deref(r.Namespace, "") != "" && (old == nil || old.Spec.DataSourceRef == nil) {
		s.DataSourceRef = nil // the feature of other namespaces is disabled
	}
	filled := old != nil && (old.Spec.DataSource != nil || old.Spec.DataSourceRef != nil)
	if d := s.DataSource; d != nil && !filled && s.DataSourceRef == nil {
		group := ptr.Deref(d.APIGroup, "")
		if !(d.Kind == "PersistentVolumeClaim" && group == "") && !(d.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io") {
			s.DataSource = nil
		}
	}
	alignDataSources(s)
	if old == nil {
		c.Status.Phase = corev1.ClaimPending
	} else {
		alignDataSources(&old.Spec)
	}
}

func alignDataSources(s *corev1.PersistentVolumeClaimSpec) {
	group := func(g *string) *string {
		if g == nil {
			return nil
		}
		return new(*g)
	}
	switch d, r := s.DataSource, s.DataSourceRef; {
	case d != nil && r == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: group(d.APIGroup), Kind: d.Kind, Name: d.Name}
	case r != nil && d == nil && ptr.Deref(r.Namespace, "") == "":
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: group(r.APIGroup), Kind: r.Kind, Name: r.Name}
	}
}

func claimWarnings(c *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: deprecated since v1.8; use \"storageClassName\" attribute instead", corev1.BetaStorageClassAnnotation))
	}
	return append(warnings, volumesource.ClaimSpecWarnings(field.NewPath("spec"), &c.Spec)...)
}

func validateClaim(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	if old == nil {
		return volumesource.ValidateClaimSpec(&c.Spec, spec)
	}
	checked := c.Spec
	var errs field.ErrorList
	if checked.Selector != nil && len(metavalidation.ValidateLabelSelector(old.Spec.Selector,
		metavalidation.LabelSelectorValidationOptions{}, nil)) > 0 {
		// An invalid selector that is stored already stays valid.
		errs = metavalidation.ValidateLabelSelector(checked.Selector,
			metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, spec.Child("selector"))
		checked.Selector = nil
	}
	errs = append(errs, volumesource.ValidateClaimSpec(&checked, spec)...)
	if s := old.Spec; s.DataSource != nil && s.DataSource.APIGroup != nil || s.DataSourceRef != nil && s.DataSourceRef.APIGroup != nil {
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool {
			return e.Field == "spec.dataSource.apiGroup" || e.Field == "spec.dataSourceRef.apiGroup"
		})
	}
	return append(errs, validateClaimChange(c, old)...)
}

// validateClaimChange allows a claim to be bound once, to get a storage class if it had none, and, when bound, to
// grow and to change its attributes class. It may shrink to any size above the current capacity, to cancel an
// expansion that failed.
func validateClaimChange(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	now, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName
	}
	oldClass, annotated := old.Annotations[corev1.BetaStorageClassAnnotation]
	newClass, stillAnnotated := c.Annotations[corev1.BetaStorageClassAnnotation]
	if annotated && was.StorageClassName == nil && now.StorageClassName != nil && *now.StorageClassName == oldClass &&
		(!stillAnnotated || newClass == oldClass) {
		now.StorageClassName = nil
	} else {
		if newClass != oldClass {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation), newClass,
				"field is immutable"))
		}
		if now.StorageClassName != nil && was.StorageClassName == nil && (!annotated || *now.StorageClassName == oldClass) {
			now.StorageClassName = nil
		}
	}
	if c.Status.Phase == corev1.ClaimBound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		now.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+check.GoFieldsDiff(*was, *now)))
	}
	oldSize, newSize, there := old.Spec.Resources.Requests[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage],
		old.Status.Capacity[corev1.ResourceStorage]
	if newSize.Cmp(oldSize) < 0 && newSize.Cmp(there) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, check.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if a, b := old.Spec.VolumeAttributesClassName, c.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil &&
		!equality.Semantic.DeepEqual(a, b) {
		at := spec.Child("volumeAttributesClassName")
		if b == nil {
			errs = append(errs, field.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"))
		} else if *b == "" {
			errs = append(errs, field.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"))
		}
	}
	return errs
}

func validateClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, check.Required(c.ResourceVersion, field.NewPath("resourceVersion"))...)
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	status := field.NewPath("status")
	for _, name := range slices.Sorted(maps.Keys(c.Status.Capacity)) {
		errs = append(errs, check.NonNegativeQuantity(c.Status.Capacity[name], status.Child("capacity").Key(string(name)))...)
	}
	if h := c.Status.HealthStatus; h != nil {
		for i, condition := range h.HealthConditions {
			if condition.Reason != "" {
				errs = append(errs, check.Messages(condition.Reason,
					status.Child("healthStatus", "healthConditions").Index(i).Child("reason"),
					metavalidation.IsValidConditionReason(condition.Reason))...)
			}
		}
	}
	at := status.Child("allocatedResourceStatuses")
	for _, name := range slices.Sorted(maps.Keys(c.Status.AllocatedResourceStatuses)) {
		errs = append(errs, validateClaimResource(name, at)...)
		if bad := check.OneOf(c.Status.AllocatedResourceStatuses[name], at, corev1.PersistentVolumeClaimControllerResizeInProgress,
			corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInProgress,
			corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending); len(bad) > 0 {
			bad[0].BadValue = name // upstream's message has the name of the resource
			errs = append(errs, bad...)
		}
	}
	at = status.Child("allocatedResources")
	for _, name := range slices.Sorted(maps.Keys(c.Status.AllocatedResources)) {
		size, key := c.Status.AllocatedResources[name], at.Key(string(name))
		bad := validateClaimResource(name, at)
		if len(bad) == 0 {
			bad = check.NonNegativeQuantity(size, key)
			if len(bad) == 0 {
				bad = resourcename.ValidateQuantity(corev1.ResourceStorage, size, key)
			}
		}
		errs = append(errs, bad...)
	}
	return errs
}

// validateClaimResource checks the name of a resource of a claim: storage, or one with a domain.
func validateClaimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := check.Messages(string(name), path, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if resourcename.IsNative(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}
