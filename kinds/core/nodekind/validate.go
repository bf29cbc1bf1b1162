package nodekind

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/resourcename"
)

// Annotations that taints have replaced; their contents are still validated.
const (
	taintsAnnotation    = "scheduler.alpha.kubernetes.io/taints"
	avoidPodsAnnotation = "scheduler.alpha.kubernetes.io/preferAvoidPods"
)

// featureName is an identifier in upper camel case, with optional further identifiers after slashes.
var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

func validateNode(n, old *corev1.Node) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := validateAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	errs = append(errs, validateQuantities(n)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(meta.Child("nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures, field.NewPath("status", "declaredFeatures"))...)
	errs = append(errs, validatePodCIDRs(n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))...)
	if old == nil {
		return errs
	}
	return append(errs, validateNodeChange(n, old)...)
}

// validateNodeChange checks an update of a node or of its status.
func validateNodeChange(n, old *corev1.Node) field.ErrorList {
	meta, spec, status := field.NewPath("metadata"), field.NewPath("spec"), field.NewPath("status")
	errs := validateAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateQuantities(n)...)
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures, status.Child("declaredFeatures"))...)
	for i, a := range n.Status.Addresses {
		if slices.Contains(n.Status.Addresses[:i], a) {
			errs = append(errs, field.Duplicate(status.Child("addresses").Index(i), check.GoFields(a)))
		}
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	switch id := spec.Child("providerID"); {
	case old.Spec.ProviderID == "" || old.Spec.ProviderID == n.Spec.ProviderID:
	case n.Spec.ProviderID == "":
		errs = append(errs, field.Invalid(id, nil, "field cannot be cleared once set"))
	default:
		errs = append(errs, field.Invalid(id, nil, "field cannot be modified once set"))
	}
	if n.Spec.ConfigSource != nil {
		errs = append(errs, validateConfigSource(n.Spec.ConfigSource, spec.Child("configSource"), false)...)
	}
	if c := n.Status.Config; c != nil {
		config := status.Child("config")
		for _, s := range []struct {
			name   string
			source *corev1.NodeConfigSource
		}{{"assigned", c.Assigned}, {"active", c.Active}, {"lastKnownGood", c.LastKnownGood}} {
			if s.source != nil {
				errs = append(errs, validateConfigSource(s.source, config.Child(s.name), true)...)
			}
		}
	}
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	return errs
}

func validateQuantities(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for _, name := range slices.Sorted(maps.Keys(part.list)) {
			errs = append(errs, resourcename.ValidateQuantity(name, part.list[name], field.NewPath("status", part.name, string(name)))...)
		}
	}
	return errs
}

func validateDeclaredFeatures(features []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range features {
		switch at := path.Index(i); {
		case len(f) > validation.DNS1123SubdomainMaxLength:
			errs = append(errs, field.Invalid(at, f,
				fmt.Sprintf("invalid feature name %q: must be no more than %d characters", f, validation.DNS1123SubdomainMaxLength)))
		case !featureName.MatchString(f):
			errs = append(errs, field.Invalid(at, f, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", f)))
		}
		if i+1 == len(features) {
			break
		}
		switch next, at := features[i+1], path.Index(i+1); {
		case f == next:
			errs = append(errs, field.Duplicate(at, next))
		case f > next:
			errs = append(errs, field.Invalid(at, next, "list must be sorted alphabetically"))
		}
	}
	return errs
}

func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, check.CIDR(cidr, path.Index(i), nil)...)
	}
	if len(cidrs) < 2 {
		return errs
	}
	both, err := netutils.IsDualStackCIDRStrings(cidrs)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	if !both || len(cidrs) > 2 {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type id struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[id]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(msgs, ";")))
		}
		errs = append(errs, check.OneOfOrRequired(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule,
			corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if seen[id{t.Key, t.Effect}] {
			twice := field.Duplicate(at, check.GoFields(t))
			twice.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, twice)
		}
		seen[id{t.Key, t.Effect}] = true
	}
	return errs
}

func validateAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if text := annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			errs = append(errs, field.Invalid(path, taintsAnnotation, err.Error()))
		} else {
			errs = append(errs, validateTaints(taints, path.Child(taintsAnnotation))...)
		}
	}
	if text := annotations[avoidPodsAnnotation]; text != "" {
		errs = append(errs, validateAvoidPods(text, path)...)
	}
	return errs
}

// validateAvoidPods checks an annotation that lists the controllers whose pods the scheduler should keep off the node.
func validateAvoidPods(text string, path *field.Path) field.ErrorList {
	var avoids corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoids); err != nil {
		return field.ErrorList{field.Invalid(path.Child("AvoidPods"), avoidPodsAnnotation, err.Error())}
	}
	var errs field.ErrorList
	for i, avoid := range avoids.PreferAvoidPods {
		at := path.Child(avoidPodsAnnotation).Index(i)
		controller := avoid.PodSignature.PodController
		if controller == nil {
			errs = append(errs, field.Required(at.Child("PodSignature"), ""))
			continue
		}
		if !ptr.Deref(controller.Controller, false) {
			errs = append(errs, field.Invalid(at.Child("PodSignature", "PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}

// validateConfigSource checks a source of kubelet configuration. In a status it must name one revision of the source.
func validateConfigSource(s *corev1.NodeConfigSource, path *field.Path, status bool) field.ErrorList {
	if s.ConfigMap == nil {
		return field.ErrorList{field.Invalid(path, check.GoFields(s), "exactly one reference subfield must be non-nil")}
	}
	var errs field.ErrorList
	c, at := s.ConfigMap, path.Child("configMap")
	if status {
		errs = append(errs, check.RequiredFields(at, "uid", string(c.UID), "resourceVersion", c.ResourceVersion)...)
	} else {
		if c.UID != "" {
			errs = append(errs, field.Forbidden(at.Child("uid"), "uid must not be set in spec"))
		}
		if c.ResourceVersion != "" {
			errs = append(errs, field.Forbidden(at.Child("resourceVersion"), "resourceVersion must not be set in spec"))
		}
	}
	for _, f := range []struct {
		name, value string
		check       func(string) []string
	}{
		{"namespace", c.Namespace, func(s string) []string { return apivalidation.ValidateNamespaceName(s, false) }},
		{"name", c.Name, validation.IsDNS1123Subdomain},
		{"kubeletConfigKey", c.KubeletConfigKey, validation.IsConfigMapKey},
	} {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), ""))
		} else {
			errs = append(errs, check.Messages(f.value, at.Child(f.name), f.check(f.value))...)
		}
	}
	return errs
}
