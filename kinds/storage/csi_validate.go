package storage

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/lib/check"
)

const tokenInSecretsRecommended = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"

func validateCSIDriver(d, old *storagev1.CSIDriver) field.ErrorList {
	spec, s := field.NewPath("spec"), &d.Spec
	var errs field.ErrorList
	policies := []storagev1.FSGroupPolicy{storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy,
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	if p := s.FSGroupPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(spec.Child("fsGroupPolicy"), *p, policies))
	}
	errs = append(errs, validateTokenRequests(s.TokenRequests, spec.Child("tokenRequests"))...)
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	for _, m := range s.VolumeLifecycleModes {
		if !slices.Contains(modes, m) {
			errs = append(errs, field.NotSupported(spec.Child("volumeLifecycleModes"), m, modes))
		}
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < 10 {
		errs = append(errs, field.Invalid(spec.Child("nodeAllocatableUpdatePeriodSeconds"), *p,
			"must be greater than or equal to 10 seconds"))
	}
	if in := s.ServiceAccountTokenInSecrets; in != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(spec.Child("serviceAccountTokenInSecrets"), *in, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if old != nil {
		// The path is misspelt as in upstream.
		errs = append(errs, check.Immutable(s.AttachRequired, old.Spec.AttachRequired, spec.Child("attachedRequired"))...)
		errs = append(errs, check.Immutable(s.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, spec.Child("volumeLifecycleModes"))...)
	}
	return errs
}

func validateTokenRequests(requests []storagev1.TokenRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range requests {
		at := path.Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		switch s := r.ExpirationSeconds; {
		case s == nil:
		case *s < 10*60:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
		case *s > 1<<32:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

func validateCSINode(n, old *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "drivers")
	seen := map[string]bool{}
	for i, d := range n.Spec.Drivers {
		errs = append(errs, validateNodeDriver(d, seen[d.Name], path.Index(i))...)
		seen[d.Name] = true
	}
	if old == nil {
		return errs
	}
	for _, was := range old.Spec.Drivers {
		for _, is := range n.Spec.Drivers {
			if was.Name == is.Name {
				was.Allocatable, is.Allocatable = nil, nil
				errs = append(errs, check.ImmutableStruct(is, was, path)...)
			}
		}
	}
	return errs
}

func validateNodeDriver(d storagev1.CSINodeDriver, twice bool, path *field.Path) field.ErrorList {
	const maxNodeID = 256
	errs := check.CSIDriverName(d.Name, path.Child("name"))
	if d.NodeID == "" {
		errs = append(errs, field.Required(path.Child("nodeID"), ""))
	}
	if len(d.NodeID) > maxNodeID {
		errs = append(errs, field.Invalid(path.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
	}
	if d.Allocatable != nil {
		errs = append(errs, check.NonNegativePtr(d.Allocatable.Count, path.Child("allocatable", "count"))...)
	}
	if twice {
		errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
	}
	seen := map[string]bool{}
	for _, key := range d.TopologyKeys {
		if key == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if seen[key] {
			errs = append(errs, field.Duplicate(path, key))
		}
		seen[key] = true
		errs = append(errs, check.QualifiedName(key, path)...)
	}
	return errs
}

// validateCSINodeStatus checks health that was stored while the feature was enabled.
func validateCSINodeStatus(n, _ *storagev1.CSINode) field.ErrorList {
	const maxConditions = 16
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, h := range n.Status.StorageHealth {
		at := field.NewPath("status", "storageHealth").Index(i)
		if seen[h.Name] {
			errs = append(errs, field.Duplicate(at, h.Name))
		}
		seen[h.Name] = true
		errs = append(errs, check.CSIDriverName(h.Name, at.Child("name"))...)
		if len(h.HealthConditions) > maxConditions {
			errs = append(errs, field.TooMany(at.Child("healthConditions"), len(h.HealthConditions), maxConditions))
			continue
		}
		for j, c := range h.HealthConditions {
			errs = append(errs, validateHealth(c, at.Child("healthConditions").Index(j))...)
		}
	}
	return errs
}

func validateHealth(c storagev1.StorageHealthCondition, path *field.Path) field.ErrorList {
	const maxReason, maxMessage = 256, 1024
	errs := check.OneOfIfSet(&c.Status, path.Child("status"), storagev1.StorageDegraded, storagev1.StorageUnreachable)
	if c.Reason == "" {
		errs = append(errs, field.Required(path.Child("reason"), ""))
	} else {
		errs = append(errs, check.Messages(c.Reason, path.Child("reason"), metav1validation.IsValidConditionReason(c.Reason))...)
		if len(c.Reason) > maxReason {
			errs = append(errs, field.TooLong(path.Child("reason"), c.Reason, maxReason))
		}
	}
	if len(c.Message) > maxMessage {
		errs = append(errs, field.TooLong(path.Child("message"), c.Message, maxMessage))
	}
	errs = append(errs, check.OneOfIfSet(c.AccessMode, path.Child("accessMode"), corev1.ReadOnlyMany, corev1.ReadWriteMany,
		corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	return append(errs, check.OneOfIfSet(c.VolumeMode, path.Child("volumeMode"), corev1.PersistentVolumeFilesystem,
		corev1.PersistentVolumeBlock)...)
}

func validateCSIStorageCapacity(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	var opts metav1validation.LabelSelectorValidationOptions
	if old != nil {
		// An invalid value that is stored already may stay.
		opts.AllowInvalidLabelValueInSelector = len(metav1validation.ValidateLabelSelector(old.NodeTopology, opts, nil)) > 0
	}
	errs := metav1validation.ValidateLabelSelector(c.NodeTopology, opts, topology)
	errs = append(errs, check.DNSSubdomain(c.StorageClassName, class)...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), apivalidation.IsNegativeErrorMsg))
	}
	if old == nil {
		return errs
	}
	if !equality.Semantic.DeepEqual(c.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(topology, c.NodeTopology, "field is immutable"))
	}
	if c.StorageClassName != old.StorageClassName {
		errs = append(errs, field.Invalid(class, c.StorageClassName, "field is immutable"))
	}
	return errs
}

func warnCSIStorageCapacity(c, _ *storagev1.CSIStorageCapacity) []string {
	if c.NodeTopology == nil {
		return nil
	}
	var warnings []string
	path := field.NewPath("nodeTopology")
	for i, r := range c.NodeTopology.MatchExpressions {
		if text, old := podplacement.DeprecatedNodeLabel(r.Key); old {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %s", path.Child("matchExpressions").Index(i).Child("key"), r.Key, text))
		}
	}
	for key := range c.NodeTopology.MatchLabels {
		if text, old := podplacement.DeprecatedNodeLabel(key); old {
			warnings = append(warnings, fmt.Sprintf("%s: %s", path.Child("matchLabels").Child(key), text))
		}
	}
	return warnings
}
