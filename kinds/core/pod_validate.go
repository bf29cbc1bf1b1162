package core

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/check"
)

// validatePodSpec checks the spec of a pod or of a template. meta is nil in a template: some names depend
// on the pod's.
func validatePodSpec(s *corev1.PodSpec, meta *metav1.ObjectMeta, at *field.Path, allow PodAllowances) field.ErrorList {
	var errs field.ErrorList
	if s.TerminationGracePeriodSeconds == nil {
		errs = append(errs, field.Required(at.Child("terminationGracePeriodSeconds"), ""))
	}
	volumes, bad := validateVolumes(s.Volumes, meta, at.Child("volumes"), allow)
	errs = append(errs, bad...)
	around := &surroundings{spec: s, volumes: volumes, claims: claimNames(s.ResourceClaims), allow: allow}
	errs = append(errs, validatePodClaims(meta, s.ResourceClaims, at.Child("resourceClaims"))...)
	errs = append(errs, around.containers(at.Child("containers"))...)
	errs = append(errs, around.initContainers(at.Child("initContainers"))...)
	errs = append(errs, around.ephemeralContainers(at.Child("ephemeralContainers"))...)
	errs = append(errs, validatePodResources(s, around.claims, at, allow)...)
	errs = append(errs, validateHostPorts(s, at, allow)...)
	errs = append(errs, oneOfOrRequired(s.RestartPolicy, at.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, oneOfOrRequired(s.DNSPolicy, at.Child("dnsPolicy"),
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, validatePodSecurity(s, at.Child("securityContext"), allow)...)
	if s.HostPID && isTrue(s.ShareProcessNamespace) {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, validateAffinity(s.Affinity, allow, at.Child("affinity"))...)
	errs = append(errs, validateDNSConfig(s.DNSConfig, s.DNSPolicy, at.Child("dnsConfig"))...)
	errs = append(errs, validateGates(s, at)...)
	errs = append(errs, validateSpread(s.TopologySpreadConstraints, at.Child("topologySpreadConstraints"), allow)...)
	errs = append(errs, validateHostProcess(s, at)...)
	errs = append(errs, validateHostUsers(s, at, allow)...)
	errs = append(errs, validateHostname(s, at)...)
	return append(errs, validatePodNames(s, at, allow)...)
}

// validatePodNames checks the plain fields: names of other objects and what the operating system allows.
func validatePodNames(s *corev1.PodSpec, at *field.Path, allow PodAllowances) field.ErrorList {
	var errs field.ErrorList
	if s.ServiceAccountName != "" {
		errs = append(errs, dnsName(s.ServiceAccountName, at.Child("serviceAccountName"))...)
	}
	if d := s.DeprecatedServiceAccount; d != s.ServiceAccountName {
		errs = append(errs, field.Invalid(at.Child("deprecatedServiceAccount"), d, fmt.Sprintf("must be the same as serviceAccountName: %q", s.ServiceAccountName)))
	}
	if s.NodeName != "" {
		errs = append(errs, dnsName(s.NodeName, at.Child("nodeName"))...)
	}
	if d := s.ActiveDeadlineSeconds; d != nil {
		errs = append(errs, inRange(*d, 1, math.MaxInt32, at.Child("activeDeadlineSeconds"))...)
	}
	if s.Hostname != "" {
		errs = append(errs, dnsLabel(s.Hostname, at.Child("hostname"))...)
	}
	if s.Subdomain != "" {
		errs = append(errs, dnsLabel(s.Subdomain, at.Child("subdomain"))...)
	}
	errs = append(errs, ValidateTolerations(s.Tolerations, at.Child("tolerations"), allow.comparedTolerations)...)
	for i, alias := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		errs = append(errs, check.IP(alias.IP, at.Child("ip"), nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, check.Messages(name, at.Child("hostnames").Index(j), validation.IsDNS1123Subdomain(name))...)
		}
	}
	if s.PriorityClassName != "" {
		errs = append(errs, dnsName(s.PriorityClassName, at.Child("priorityClassName"))...)
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, dnsName(*s.RuntimeClassName, at.Child("runtimeClassName"))...)
	}
	if p := s.PreemptionPolicy; p != nil {
		errs = append(errs, oneOfOrRequired(*p, at.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if s.Overhead != nil {
		errs = append(errs, validateResources(&corev1.ResourceRequirements{Limits: s.Overhead}, containerResource, nil, at.Child("overhead"), allow)...)
	}
	if s.OS != nil {
		errs = append(errs, validateOS(s, at)...)
	}
	if g := s.SchedulingGroup; g != nil {
		at := at.Child("schedulingGroup")
		if g.PodGroupName == nil {
			errs = append(errs, field.Invalid(at.Child("podGroupName"), g.PodGroupName, "must specify one of: `podGroupName`"))
		} else {
			errs = append(errs, dnsName(*g.PodGroupName, at.Child("podGroupName"))...)
		}
		if len(s.EvictionResponders) > 0 {
			errs = append(errs, field.Forbidden(at, "may not be set when evictionResponders is set"))
		}
	}
	return append(errs, validateFileRefs(s, at)...)
}

// validateFileRefs wants the files that variables are read from to be in empty directories.
func validateFileRefs(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for c, at := range containerPaths(s, at) {
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
		if isMirror(meta) {
			errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support resource claims"))
			continue
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[c.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, dnsLabel(c.Name, at.Child("name"))...)
			names[c.Name] = true
		}
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, shown{c}, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, shown{c}, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if n := c.ResourceClaimName; n != nil {
			errs = append(errs, dnsName(*n, at.Child("resourceClaimName"))...)
		}
		if n := c.ResourceClaimTemplateName; n != nil {
			errs = append(errs, dnsName(*n, at.Child("resourceClaimTemplateName"))...)
		}
	}
	return errs
}

// isMirror says whether a pod is the picture of one that a node runs from a file.
func isMirror(meta *metav1.ObjectMeta) bool {
	if meta == nil {
		return false
	}
	_, is := meta.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// validatePodResources checks what the pod as a whole may use against what its containers ask for.
func validatePodResources(s *corev1.PodSpec, claims []string, at *field.Path, allow PodAllowances) field.ErrorList {
	if s.Resources == nil {
		return nil
	}
	at = at.Child("resources")
	if onWindows(s) {
		return field.ErrorList{field.Forbidden(at, "may not be set for a windows pod")}
	}
	var errs field.ErrorList
	if s.Resources.Claims != nil {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, validateResources(s.Resources, podResourceName, claims, at, allow)...)

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
		if _, set := s.Resources.Limits[res]; set && isHugePages(res) && total.Cmp(want) > 0 {
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

// validateHostPorts wants the ports of a pod in the host's network to be the host's.
func validateHostPorts(s *corev1.PodSpec, at *field.Path, allow PodAllowances) field.ErrorList {
	if !s.HostNetwork {
		return nil
	}
	var errs field.ErrorList
	for i, c := range s.Containers {
		for j, p := range c.Ports {
			if (allow.isPod || p.HostPort != 0) && p.HostPort != p.ContainerPort {
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
		errs = append(errs, qualifiedName(string(gate.ConditionType), at.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	seen := map[string]bool{}
	for i, gate := range s.SchedulingGates {
		at := at.Child("schedulingGates").Index(i)
		errs = append(errs, qualifiedName(gate.Name, at)...)
		if seen[gate.Name] {
			errs = append(errs, field.Duplicate(at, gate.Name))
		}
		seen[gate.Name] = true
	}
	return errs
}

// What the resolvers of C libraries can hold.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func validateDNSConfig(c *corev1.PodDNSConfig, policy corev1.DNSPolicy, at *field.Path) field.ErrorList {
	if policy == corev1.DNSNone {
		if c == nil {
			return field.ErrorList{field.Required(at, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", policy))}
		}
		if len(c.Nameservers) == 0 {
			return field.ErrorList{field.Required(at.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", policy))}
		}
	}
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(at.Child("nameservers"), c.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, ip := range c.Nameservers {
		errs = append(errs, check.IP(ip, at.Child("nameservers").Index(i), nil)...)
	}
	searches := at.Child("searches")
	if len(c.Searches) > maxSearches {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchLength {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength)))
	}
	for i, domain := range c.Searches {
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
			errs = append(errs, check.Messages(domain, searches.Index(i), validation.IsDNS1123SubdomainWithUnderscore(domain))...)
		}
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func validateHostname(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	if s.HostnameOverride == nil {
		return nil
	}
	var errs field.ErrorList
	at = at.Child("hostnameOverride")
	if isTrue(s.SetHostnameAsFQDN) {
		errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
	}
	if len(*s.HostnameOverride) > 64 {
		errs = append(errs, field.TooLong(at, "", 64))
	}
	return append(errs, check.Messages(*s.HostnameOverride, at, validation.IsDNS1123Subdomain(*s.HostnameOverride))...)
}

// validateHostUsers refuses what does not go together with users of the pod's own.
func validateHostUsers(s *corev1.PodSpec, at *field.Path, allow PodAllowances) field.ErrorList {
	if s.HostUsers == nil || *s.HostUsers {
		return nil
	}
	const text = "when `hostUsers` is false"
	var errs field.ErrorList
	if s.HostNetwork && !allow.userNamespaceHostNetwork {
		errs = append(errs, field.Forbidden(at.Child("hostNetwork"), text))
	}
	if s.HostPID {
		errs = append(errs, field.Forbidden(at.Child("HostPID"), text))
	}
	if s.HostIPC {
		errs = append(errs, field.Forbidden(at.Child("HostIPC"), text))
	}
	if allow.userNamespaceDevices {
		return errs
	}
	for c, at := range containerPaths(s, at) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(at.Child("volumeDevices"), text))
		}
	}
	return errs
}
