package podkind

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/resourcename"
)

func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	at := field.NewPath("status")
	s, was := &p.Status, &old.Status
	errs := validateAnnotationChanges(p, old, field.NewPath("metadata", "annotations"), podAllowances(old))
	errs = append(errs, validatePodConditions(s.Conditions, at.Child("conditions"))...)
	if s.NominatedNodeName != was.NominatedNodeName && s.NominatedNodeName != "" {
		errs = append(errs, check.DNSSubdomain(s.NominatedNodeName, at.Child("nominatedNodeName"))...)
		if old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(at.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
		}
	}
	if s.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(at.Child("observedGeneration"), s.ObservedGeneration, "must be a non-negative integer"))
	}
	errs = append(errs, check.Immutable(s.QOSClass, was.QOSClass, at.Child("qosClass"))...)
	if !canRestartAll(&old.Spec) {
		errs = append(errs, validateStates(s.ContainerStatuses, was.ContainerStatuses, &old.Spec, old.Spec.Containers,
			at.Child("containerStatuses"))...)
		errs = append(errs, validateStates(s.InitContainerStatuses, was.InitContainerStatuses, &old.Spec, old.Spec.InitContainers,
			at.Child("initContainerStatuses"))...)
	}
	errs = append(errs, validateStates(s.EphemeralContainerStatuses, was.EphemeralContainerStatuses, nil, nil,
		at.Child("ephemeralContainerStatuses"))...)
	errs = append(errs, validateClaimStatuses(p, at)...)
	errs = append(errs, validateVolumeHealth(p, at.Child("volumeHealth"))...)
	errs = append(errs, validatePodIPs(p, old, at.Child("podIPs"))...)
	errs = append(errs, validateHostIPs(p, old, at.Child("hostIPs"))...)
	for _, list := range []struct {
		name     string
		statuses []corev1.ContainerStatus
	}{
		{"containerStatuses", s.ContainerStatuses}, {"initContainerStatuses", s.InitContainerStatuses},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
	} {
		errs = append(errs, validateStatusUsers(list.statuses, p, at.Child(list.name))...)
	}
	errs = append(errs, validateHealth(s.ContainerStatuses, p.Spec.Containers, s, at.Child("containerStatuses"))...)
	errs = append(errs, validateHealth(s.InitContainerStatuses, p.Spec.InitContainers, s, at.Child("initContainerStatuses"))...)
	for i, c := range s.EphemeralContainerStatuses {
		if len(c.AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(at.Child("ephemeralContainerStatuses").Index(i).Child("allocatedResourcesStatus"),
				"must not be specified in container status"))
		}
	}
	return errs
}

func validatePodConditions(conditions []corev1.PodCondition, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(list.Index(i).Child("observedGeneration"), c.ObservedGeneration,
				"must be a non-negative integer"))
		}
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			errs = append(errs, check.QualifiedName(string(c.Type), list.Index(i).Child("Type"))...)
		}
	}
	return errs
}

// canRestartAll reports whether a container may restart all containers of the pod.
func canRestartAll(s *corev1.PodSpec) bool {
	for _, c := range containerspec.All(s) {
		if slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}

// isRestarted reports whether a container that exited with this code is restarted.
func isRestarted(c *corev1.Container, s *corev1.PodSpec, code int32) bool {
	policy := string(s.RestartPolicy)
	if c.RestartPolicy != nil {
		for _, r := range c.RestartPolicyRules {
			if r.ExitCodes == nil {
				continue
			}
			in := slices.Contains(r.ExitCodes.Values, code)
			if in && r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn || !in &&
				r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn {
				if r.Action == corev1.ContainerRestartRuleActionRestart ||
					r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
				break
			}
		}
		policy = string(*c.RestartPolicy)
	}
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return code != 0
	}
	return true
}

// validateStates refuses a state other than terminated for containers that have exited and are not restarted. Without
// a spec no container is.
func validateStates(is, was []corev1.ContainerStatus, s *corev1.PodSpec, containers []corev1.Container, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, old := range was {
		if old.State.Terminated == nil {
			continue
		}
		again := slices.ContainsFunc(is, func(c corev1.ContainerStatus) bool { return c.Name == old.Name && c.State.Terminated == nil })
		j := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == old.Name })
		if again && (j < 0 || !isRestarted(&containers[j], s, old.State.Terminated.ExitCode)) {
			errs = append(errs, field.Forbidden(list.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

func validateClaimStatuses(p *corev1.Pod, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, s := range p.Status.ResourceClaimStatuses {
		at := at.Child("resourceClaimStatuses").Index(i)
		if !slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if names[s.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		names[s.Name] = true
		if s.ResourceClaimName != nil {
			errs = append(errs, check.DNSSubdomain(*s.ResourceClaimName, at.Child("resourceClaimName"))...)
		}
	}
	errs = append(errs, validateExtendedClaim(p, at.Child("extendedResourceClaimStatus"))...)
	return append(errs, validateNodeClaims(p, at.Child("nodeAllocatableResourceClaimStatuses"))...)
}

func validateExtendedClaim(p *corev1.Pod, at *field.Path) field.ErrorList {
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil {
		return nil
	}
	containers := map[string]*corev1.Container{}
	for list, c := range containerspec.All(&p.Spec) {
		if list != "ephemeralContainers" {
			containers[c.Name] = c
		}
	}
	var errs field.ErrorList
	if len(s.RequestMappings) == 0 {
		errs = append(errs, field.Required(at.Child("requestMappings"), "at least one request mapping is required"))
	}
	seen := map[corev1.ContainerExtendedResourceRequest]bool{}
	for i, m := range s.RequestMappings {
		in := at.Child("requestMappings").Index(i)
		if c := containers[m.ContainerName]; c == nil {
			errs = append(errs, field.Invalid(in.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		} else if _, asked := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !asked {
			errs = append(errs, field.Invalid(in.Child("resourceName"), m.ResourceName,
				"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, check.DNSLabel(m.RequestName, at.Child("requestName"))...)
		if seen[m] {
			errs = append(errs, field.Duplicate(in.Child("containerName"), m.ContainerName),
				field.Duplicate(in.Child("resourceName"), m.ResourceName),
				field.Duplicate(in.Child("requestName"), m.RequestName))
		}
		seen[m] = true
	}
	if s.ResourceClaimName == "" {
		return append(errs, field.Required(at.Child("resourceClaimName"), ""))
	}
	return append(errs, check.DNSSubdomain(s.ResourceClaimName, at.Child("resourceClaimName"))...)
}

func validateNodeClaims(p *corev1.Pod, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	negative := func(q *resource.Quantity, at *field.Path) {
		if q != nil && q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be non-negative"))
		}
	}
	named := func(res corev1.ResourceName, at *field.Path) {
		if res != corev1.ResourceCPU && res != corev1.ResourceMemory && !resourcename.IsHugePages(res) {
			errs = append(errs, field.Invalid(at.Child("name"), res, "must be a node allocatable resource name"))
		}
	}
	for i, s := range p.Status.NodeAllocatableResourceClaimStatuses {
		if s.ResourceClaimName == "" {
			continue
		}
		is := func(name *string) bool { return name != nil && *name == s.ResourceClaimName }
		if !slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return is(c.ResourceClaimName) }) &&
			!slices.ContainsFunc(p.Status.ResourceClaimStatuses,
				func(c corev1.PodResourceClaimStatus) bool { return is(c.ResourceClaimName) }) {
			errs = append(errs, field.Invalid(list.Index(i).Child("resourceClaimName"), s.ResourceClaimName,
				"no mapping found in pod reference"))
		}
		for j, m := range s.Mapping {
			at := list.Index(i).Child("mapping").Index(j)
			named(m.Name, at)
			negative(m.Quantity, at.Child("quantity"))
		}
		for j, o := range s.Overhead {
			at := list.Index(i).Child("overhead").Index(j)
			named(o.Name, at)
			if o.PerPod == nil && o.PerContainer == nil {
				errs = append(errs, field.Invalid(at, "", "at least one of perPod or perContainer must be set"))
			}
			negative(o.PerPod, at.Child("perPod"))
			negative(o.PerContainer, at.Child("perContainer"))
		}
	}
	return errs
}

func validateVolumeHealth(p *corev1.Pod, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, h := range p.Status.VolumeHealth {
		if h.Name != "" && !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == h.Name }) {
			errs = append(errs, field.NotFound(list.Index(i).Child("name"), h.Name))
		}
		for j, c := range h.HealthConditions {
			if c.Reason != "" {
				errs = append(errs, check.Messages(c.Reason, list.Index(i).Child("healthConditions").Index(j).Child("reason"),
					metavalidation.IsValidConditionReason(c.Reason))...)
			}
		}
	}
	return errs
}

func validatePodIPs(p, old *corev1.Pod, at *field.Path) field.ErrorList {
	ips, was := make([]string, len(p.Status.PodIPs)), make([]string, len(old.Status.PodIPs))
	for i, ip := range p.Status.PodIPs {
		ips[i] = ip.IP
	}
	for i, ip := range old.Status.PodIPs {
		was[i] = ip.IP
	}
	errs := validateIPs(ips, was, check.GoFields(p.Status.PodIPs), at)
	switch {
	case (p.Status.PodIP == "") != (len(ips) == 0):
		errs = append(errs, field.Invalid(at, check.GoFields(p.Status.PodIPs), "podIP and podIPs must either both be set or both be unset"))
	case len(ips) > 0 && p.Status.PodIP != ips[0]:
		errs = append(errs, field.Invalid(at.Index(0).Child("ip"), ips[0], "must be equal to `podIP`"))
	}
	return errs
}

func validateHostIPs(p, old *corev1.Pod, at *field.Path) field.ErrorList {
	if len(p.Status.HostIPs) == 0 {
		return nil
	}
	ips, was := make([]string, len(p.Status.HostIPs)), make([]string, len(old.Status.HostIPs))
	for i, ip := range p.Status.HostIPs {
		ips[i] = ip.IP
	}
	for i, ip := range old.Status.HostIPs {
		was[i] = ip.IP
	}
	var errs field.ErrorList
	if p.Status.HostIP != ips[0] {
		errs = append(errs, field.Invalid(at.Index(0).Child("ip"), ips[0], "must be equal to `hostIP`"))
	}
	return append(errs, validateIPs(ips, was, check.GoFields(p.Status.HostIPs), at)...)
}

// validateIPs refuses invalid addresses and more than one of a family.
func validateIPs(ips, was []string, all any, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, text := range ips {
		errs = append(errs, check.IP(text, at.Index(i), was)...)
	}
	if len(ips) < 2 {
		return errs
	}
	both, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		errs = append(errs, field.InternalError(at, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !both || len(ips) > 2 {
		errs = append(errs, field.Invalid(at, all, "may specify no more than one IP for each IP family"))
	}
	return errs
}

func validateStatusUsers(statuses []corev1.ContainerStatus, p *corev1.Pod, list *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range statuses {
		if s.User == nil || s.User.Linux == nil {
			continue
		}
		u, at := s.User.Linux, list.Index(i).Child("user", "linux")
		switch {
		case podspec.IsWindows(&p.Spec):
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
		case p.Spec.OS == nil || p.Spec.OS.Name == corev1.Linux:
			// A runtime may report any user ID of the kernel, which are more than a pod may request.
			if u.UID < 0 || u.UID > math.MaxUint32 {
				errs = append(errs, field.Invalid(at.Child("uid"), u.UID,
					fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32))))
			}
			errs = append(errs, check.GroupID(&u.GID, at.Child("gid"))...)
			for g := range u.SupplementalGroups {
				errs = append(errs, check.GroupID(&u.SupplementalGroups[g], at.Child("supplementalGroups").Index(g))...)
			}
		}
	}
	return errs
}

// validateHealth checks the reported health of devices.
func validateHealth(statuses []corev1.ContainerStatus, containers []corev1.Container, s *corev1.PodStatus,
	list *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range statuses {
		j := slices.IndexFunc(containers, func(x corev1.Container) bool { return x.Name == c.Name })
		for k, r := range c.AllocatedResourcesStatus {
			at := list.Index(i).Child("allocatedResourcesStatus").Index(k)
			if j >= 0 {
				errs = append(errs, validateHealthName(r.Name, &containers[j], s, at.Child("name"))...)
			}
			seen := map[corev1.ResourceID]bool{}
			for l, h := range r.Resources {
				at := at.Child("resources").Index(l)
				errs = append(errs, check.OneOf(h.Health, at.Child("health"), corev1.ResourceHealthStatusHealthy,
					corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
				if m := h.Message; m != nil && *m == "" {
					errs = append(errs, field.Required(at.Child("message"), "must be non-empty if specified"))
				} else if m != nil && len(*m) > corev1.ResourceHealthMessageMaxLength {
					errs = append(errs, field.TooLong(at.Child("message"), *m, corev1.ResourceHealthMessageMaxLength))
				}
				if seen[h.ResourceID] {
					errs = append(errs, field.Duplicate(at.Child("resourceID"), h.ResourceID))
				}
				seen[h.ResourceID] = true
			}
		}
	}
	return errs
}

// validateHealthName refuses the name of a resource that the container does not ask for, by a request or a claim.
func validateHealthName(name corev1.ResourceName, c *corev1.Container, s *corev1.PodStatus, at *field.Path) field.ErrorList {
	ref, byClaim := strings.CutPrefix(string(name), "claim:")
	if !byClaim {
		if _, asked := c.Resources.Requests[name]; asked {
			return nil
		}
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	}
	for _, claim := range c.Resources.Claims {
		if ref == claim.Name && claim.Request == "" || claim.Request != "" && ref == claim.Name+"/"+claim.Request {
			return nil
		}
	}
	claim, request, _ := strings.Cut(ref, "/")
	if x := s.ExtendedResourceClaimStatus; x != nil && claim != "" && request != "" && claim == x.ResourceClaimName {
		for _, m := range x.RequestMappings {
			q := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
			if m.ContainerName == c.Name && m.RequestName == request && !q.IsZero() {
				return nil
			}
		}
	}
	return field.ErrorList{field.Invalid(at, name,
		"must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")}
}
