// Package podspec defaults and validates pod specs and pod templates as all workloads use them, drops the fields of disabled features and
// gives warnings. What only Pods themselves have is in podkind.
package podspec

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/core/volumesource"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/resourcename"
)

// Validate checks the spec of a pod or of a template. meta is nil in a template; in a pod, names of other objects
// derive from its name.
func Validate(s *corev1.PodSpec, meta *metav1.ObjectMeta, at *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	if s.TerminationGracePeriodSeconds == nil {
		errs = append(errs, field.Required(at.Child("terminationGracePeriodSeconds"), ""))
	}
	volumes, bad := volumesource.Validate(s.Volumes, meta, at.Child("volumes"), allow.Volumes)
	errs = append(errs, bad...)
	claims := claimNames(s.ResourceClaims)
	containers := &containerspec.PodContext{Spec: s, Volumes: volumes, Claims: claims, Allow: allow.Containers}
	errs = append(errs, validatePodClaims(meta, s.ResourceClaims, at.Child("resourceClaims"))...)
	errs = append(errs, containers.Validate(at)...)
	errs = append(errs, validatePodResources(s, claims, at, allow)...)
	errs = append(errs, validateHostPorts(s, at, allow)...)
	errs = append(errs, check.OneOfOrRequired(s.RestartPolicy, at.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, check.OneOfOrRequired(s.DNSPolicy, at.Child("dnsPolicy"),
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, containerspec.ValidatePodSecurity(s, at.Child("securityContext"), allow.Containers)...)
	if s.HostPID && ptr.Deref(s.ShareProcessNamespace, false) {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), true,
			"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, podplacement.ValidateAffinity(s.Affinity, allow.Placement, at.Child("affinity"))...)
	errs = append(errs, validateDNSConfig(s.DNSConfig, s.DNSPolicy, at.Child("dnsConfig"))...)
	errs = append(errs, validateGates(s, at)...)
	errs = append(errs, podplacement.ValidateSpread(s.TopologySpreadConstraints, at.Child("topologySpreadConstraints"), allow.Placement)...)
	errs = append(errs, validateHostProcess(s, at)...)
	errs = append(errs, validateHostUsers(s, at, allow)...)
	errs = append(errs, validateHostname(s, at)...)
	return append(errs, validatePodNames(s, at, allow)...)
}

// validatePodNames checks names of other objects, scheduling and operating system fields.
func validatePodNames(s *corev1.PodSpec, at *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	if s.ServiceAccountName != "" {
		errs = append(errs, check.DNSSubdomain(s.ServiceAccountName, at.Child("serviceAccountName"))...)
	}
	if d := s.DeprecatedServiceAccount; d != s.ServiceAccountName {
		errs = append(errs, field.Invalid(at.Child("deprecatedServiceAccount"), d,
			fmt.Sprintf("must be the same as serviceAccountName: %q", s.ServiceAccountName)))
	}
	if s.NodeName != "" {
		errs = append(errs, check.DNSSubdomain(s.NodeName, at.Child("nodeName"))...)
	}
	if d := s.ActiveDeadlineSeconds; d != nil {
		errs = append(errs, check.InRange(*d, 1, math.MaxInt32, at.Child("activeDeadlineSeconds"))...)
	}
	if s.Hostname != "" {
		errs = append(errs, check.DNSLabel(s.Hostname, at.Child("hostname"))...)
	}
	if s.Subdomain != "" {
		errs = append(errs, check.DNSLabel(s.Subdomain, at.Child("subdomain"))...)
	}
	errs = append(errs, podplacement.ValidateTolerations(s.Tolerations, at.Child("tolerations"), allow.Placement.ComparingTolerations)...)
	for i, alias := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		errs = append(errs, check.IP(alias.IP, at.Child("ip"), nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, check.DNSSubdomain(name, at.Child("hostnames").Index(j))...)
		}
	}
	if s.PriorityClassName != "" {
		errs = append(errs, check.DNSSubdomain(s.PriorityClassName, at.Child("priorityClassName"))...)
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, check.DNSSubdomain(*s.RuntimeClassName, at.Child("runtimeClassName"))...)
	}
	if p := s.PreemptionPolicy; p != nil {
		errs = append(errs, check.OneOfOrRequired(*p, at.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if s.Overhead != nil {
		errs = append(errs, containerspec.ValidateResources(&corev1.ResourceRequirements{Limits: s.Overhead},
			resourcename.ValidateContainer, nil, at.Child("overhead"), allow.Containers)...)
	}
	if s.OS != nil {
		errs = append(errs, validateOS(s, at)...)
	}
	if g := s.SchedulingGroup; g != nil {
		at := at.Child("schedulingGroup")
		if g.PodGroupName == nil {
			errs = append(errs, field.Invalid(at.Child("podGroupName"), g.PodGroupName, "must specify one of: `podGroupName`"))
		} else {
			errs = append(errs, check.DNSSubdomain(*g.PodGroupName, at.Child("podGroupName"))...)
		}
		if len(s.EvictionResponders) > 0 {
			errs = append(errs, field.Forbidden(at, "may not be set when evictionResponders is set"))
		}
	}
	return append(errs, validateFileRefs(s, at)...)
}

// validateFileRefs requires that the files from which environment variables are read are in emptyDir volumes.
func validateFileRefs(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for c, at := range containerspec.WithPaths(s, at) {
		for i, e := range c.Env {
			if e.ValueFrom == nil || e.ValueFrom.FileKeyRef == nil {
				continue
			}
			name := e.ValueFrom.FileKeyRef.VolumeName
			at := at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			j := slices.IndexFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			if j < 0 {
				errs = append(errs, field.NotFound(at, name))
			} else if s.Volumes[j].EmptyDir == nil {
				errs = append(errs, field.Invalid(at, name, "referenced volume must be of type emptyDir"))
			}
		}
	}
	return errs
}

func claimNames(claims []corev1.PodResourceClaim) []string {
	names := map[string]bool{}
	for _, c := range claims {
		if c.Name != "" {
			names[c.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func validatePodClaims(meta *metav1.ObjectMeta, claims []corev1.PodResourceClaim, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, c := range claims {
		at := list.Index(i)
		if IsMirror(meta) {
			errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support resource claims"))
			continue
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[c.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, check.DNSLabel(c.Name, at.Child("name"))...)
			names[c.Name] = true
		}
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, check.GoFields(c), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, check.GoFields(c), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if n := c.ResourceClaimName; n != nil {
			errs = append(errs, check.DNSSubdomain(*n, at.Child("resourceClaimName"))...)
		}
		if n := c.ResourceClaimTemplateName; n != nil {
			errs = append(errs, check.DNSSubdomain(*n, at.Child("resourceClaimTemplateName"))...)
		}
	}
	return errs
}

// IsMirror reports whether a pod is the mirror of a static pod.
func IsMirror(meta *metav1.ObjectMeta) bool {
	if meta == nil {
		return false
	}
	_, is := meta.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// validatePodResources checks the pod-level resources against the sum of those of the containers.
func validatePodResources(s *corev1.PodSpec, claims []string, at *field.Path, allow Allowances) field.ErrorList {
	if s.Resources == nil {
		return nil
	}
	at = at.Child("resources")
	if IsWindows(s) {
		return field.ErrorList{field.Forbidden(at, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if s.Resources.Claims != nil {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, containerspec.ValidateResources(s.Resources, containerspec.ValidatePodResourceName, claims, at,
		allow.Containers)...)

	pod := &corev1.Pod{Spec: *s}
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, res := range slices.Sorted(maps.Keys(sum)) {
		want, total := s.Resources.Requests[res], sum[res]
		if _, set := s.Resources.Requests[res]; set && total.Cmp(want) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(res)), want.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", total.String())))
		}
	}
	sum = resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, res := range slices.Sorted(maps.Keys(sum)) {
		want, total := s.Resources.Limits[res], sum[res]
		if _, set := s.Resources.Limits[res]; set && resourcename.IsHugePages(res) && total.Cmp(want) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(res)), want.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", total.String())))
		}
	}
	for i := range s.Containers {
		limits := s.Containers[i].Resources.Limits
		for _, res := range slices.Sorted(maps.Keys(limits)) {
			most, set := s.Resources.Limits[res]
			if limit := limits[res]; set && limit.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(at.Child("containers").Index(i).Key(string(res)).Child("limits"), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
	return errs
}

// validateHostPorts requires that the container ports of a pod in the host network equal its host ports.
func validateHostPorts(s *corev1.PodSpec, at *field.Path, allow Allowances) field.ErrorList {
	if !s.HostNetwork {
		return nil
	}
	var errs field.ErrorList
	for i, c := range s.Containers {
		for j, p := range c.Ports {
			if (allow.ForPod || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(at.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort,
					"must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}

func validateGates(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range s.ReadinessGates {
		errs = append(errs, check.QualifiedName(string(gate.ConditionType), at.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	seen := map[string]bool{}
	for i, gate := range s.SchedulingGates {
		at := at.Child("schedulingGates").Index(i)
		errs = append(errs, check.QualifiedName(gate.Name, at)...)
		if seen[gate.Name] {
			errs = append(errs, field.Duplicate(at, gate.Name))
		}
		seen[gate.Name] = true
	}
	return errs
}

func validateHostname(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	if s.HostnameOverride == nil {
		return nil
	}
	var errs field.ErrorList
	at = at.Child("hostnameOverride")
	if ptr.Deref(s.SetHostnameAsFQDN, false) {
		errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
	}
	if len(*s.HostnameOverride) > 64 {
		errs = append(errs, field.TooLong(at, "", 64))
	}
	return append(errs, check.DNSSubdomain(*s.HostnameOverride, at)...)
}

// validateHostUsers refuses what cannot be combined with a user namespace.
func validateHostUsers(s *corev1.PodSpec, at *field.Path, allow Allowances) field.ErrorList {
	if s.HostUsers == nil || *s.HostUsers {
		return nil
	}
	const text = "when `hostUsers` is false"
	var errs field.ErrorList
	if s.HostNetwork && !allow.UserNamespaceHostNetwork {
		errs = append(errs, field.Forbidden(at.Child("hostNetwork"), text))
	}
	if s.HostPID {
		errs = append(errs, field.Forbidden(at.Child("HostPID"), text))
	}
	if s.HostIPC {
		errs = append(errs, field.Forbidden(at.Child("HostIPC"), text))
	}
	if allow.UserNamespaceDevices {
		return errs
	}
	for c, at := range containerspec.WithPaths(s, at) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(at.Child("volumeDevices"), text))
		}
	}
	return errs
}
