// Package containerspec defaults and validates the containers of a pod spec: ports, environment, mounts, probes, resources and
// security contexts, of the container and of the pod around it.
package containerspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/resourcename"
)

// Allowances says which of today's rules the containers of a stored pod may go on breaking.
type Allowances struct {
	IndivisibleHugePages      bool
	NamespacedSysctlsOnHost   bool
	RestartOfInitOnResize     bool
	SysAdminWithoutEscalation bool
}

// PodContext is what validating a container requires of its pod.
type PodContext struct {
	Spec    *corev1.PodSpec
	Volumes map[string]*corev1.VolumeSource // the volumes that are valid, by name
	Claims  []string                        // the names of the resource claims, sorted
	Allow   Allowances
}

// Validate checks the containers, init containers and ephemeral containers of the pod whose spec is at the path.
func (s *PodContext) Validate(at *field.Path) field.ErrorList {
	errs := s.validateContainers(at.Child("containers"))
	errs = append(errs, s.validateInitContainers(at.Child("initContainers"))...)
	return append(errs, s.validateEphemeralContainers(at.Child("ephemeralContainers"))...)
}

func (s *PodContext) hostUsers() bool { return s.Spec.HostUsers == nil || *s.Spec.HostUsers }

// validateContainer checks the rules that containers, init containers and ephemeral containers share.
func (s *PodContext) validateContainer(c *corev1.Container, at *field.Path) field.ErrorList {
	errs := check.RequiredDNSLabel(c.Name, at.Child("name"))
	errs = append(errs, check.Required(c.Image, at.Child("image"))...)
	errs = append(errs, check.OneOfOrRequired(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, s.validateMounts(c, at.Child("volumeMounts"))...)
	errs = append(errs, s.validateDevices(c, at.Child("volumeDevices"))...)
	errs = append(errs, check.OneOfOrRequired(c.ImagePullPolicy, at.Child("imagePullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent,
		corev1.PullNever)...)
	errs = append(errs, ValidateResources(&c.Resources, resourcename.ValidateContainer, s.Claims, at.Child("resources"), s.Allow)...)
	errs = append(errs, validateResizePolicy(c.ResizePolicy, at.Child("resizePolicy"), s.Spec.RestartPolicy)...)
	return append(errs, validateSecurityContext(c.SecurityContext, at.Child("securityContext"), s.hostUsers(), s.Allow)...)
}

// validateLongRunning checks the fields that only long-running containers may have: lifecycle hooks and probes.
func (s *PodContext) validateLongRunning(c *corev1.Container, at *field.Path) field.ErrorList {
	grace := s.Spec.TerminationGracePeriodSeconds
	errs := validateLifecycle(c.Lifecycle, grace, at.Child("lifecycle"), s.Spec.OS)
	errs = append(errs, validateLiveness(c.LivenessProbe, grace, at.Child("livenessProbe"))...)
	errs = append(errs, validateReadiness(c.ReadinessProbe, grace, at.Child("readinessProbe"))...)
	return append(errs, validateLiveness(c.StartupProbe, grace, at.Child("startupProbe"))...)
}

func (s *PodContext) validateContainers(at *field.Path) field.ErrorList {
	list := s.Spec.Containers
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range list {
		c, at := &list[i], at.Index(i)
		errs = append(errs, s.validateContainer(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, s.validateLongRunning(c, at)...)
		errs = append(errs, validateRestart(c, at)...)
	}
	return append(errs, validateHostPortConflicts(list, at)...)
}

func (s *PodContext) validateInitContainers(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range s.Spec.Containers {
		names[s.Spec.Containers[i].Name] = true
	}
	for i := range s.Spec.InitContainers {
		c, in := &s.Spec.InitContainers[i], at.Index(i)
		errs = append(errs, s.validateContainer(c, in)...)
		if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
			errs = append(errs, restartPolicyMissing(in))
		} else {
			errs = append(errs, validateRestart(c, in)...)
		}
		if names[c.Name] {
			errs = append(errs, field.Duplicate(in.Child("name"), c.Name))
		} else if c.Name != "" {
			names[c.Name] = true
		}
		// One init container runs after the other, so each is compared with itself only.
		errs = append(errs, validateHostPortConflicts(s.Spec.InitContainers[i:i+1], at)...)
		if IsSidecar(c) {
			errs = append(errs, s.validateLongRunning(c, in)...)
			continue
		}
		for _, part := range []struct {
			name string
			set  bool
		}{
			{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil},
			{"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil},
		} {
			if part.set {
				errs = append(errs, field.Forbidden(in.Child(part.name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		for j, p := range c.ResizePolicy {
			if p.RestartPolicy == corev1.RestartContainer && !s.Allow.RestartOfInitOnResize {
				errs = append(errs, field.Invalid(in.Child("resizePolicy").Index(j).Child("restartPolicy"), p.RestartPolicy,
					"must not be set to 'RestartContainer' for non-sidecar initContainers"))
			}
		}
	}
	return errs
}

// ephemeralFields returns the fields that an ephemeral container may set.
func ephemeralFields() []string {
	return []string{"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
		"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY"}
}

func (s *PodContext) validateEphemeralContainers(at *field.Path) field.ErrorList {
	const text = "cannot be set for an Ephemeral Container"
	var errs field.ErrorList
	others, names := map[string]bool{}, map[string]bool{}
	for list, c := range All(s.Spec) {
		if list != "ephemeralContainers" {
			others[c.Name], names[c.Name] = true, true
		}
	}
	for i := range s.Spec.EphemeralContainers {
		e, at := &s.Spec.EphemeralContainers[i], at.Index(i)
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		errs = append(errs, s.validateContainer(c, at)...)
		errs = append(errs, ValidateImage(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		if e.TargetContainerName != "" && !others[e.TargetContainerName] {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		errs = append(errs, check.OnlyFields(e.EphemeralContainerCommon, text, at, ephemeralFields()...)...)
		for j, m := range c.VolumeMounts {
			if m.SubPath != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), text))
			}
			if m.SubPathExpr != "" {
				errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), text))
			}
		}
	}
	return errs
}

// ValidateImage refuses white space around the image of a container. Templates are not checked for it.
func ValidateImage(c *corev1.Container, at *field.Path) field.ErrorList {
	if c.Image != strings.TrimSpace(c.Image) {
		return field.ErrorList{field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace")}
	}
	return nil
}

// IsSidecar reports whether an init container keeps running beside the other containers.
func IsSidecar(c *corev1.Container) bool {
	return c != nil && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func restartPolicyMissing(at *field.Path) *field.Error {
	return field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
}

func validateRestart(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy == nil {
		if len(c.RestartPolicyRules) == 0 {
			return nil
		}
		errs = append(errs, restartPolicyMissing(at))
	} else {
		errs = append(errs, check.OneOf(*c.RestartPolicy, at.Child("restartPolicy"),
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	}
	rules := at.Child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > 20 {
		errs = append(errs, field.TooMany(rules, n, 20))
	}
	for i, rule := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, check.OneOf(rule.Action, at.Child("action"),
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, check.OneOf(rule.ExitCodes.Operator, at.Child("exitCodes", "operator"),
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > 255 {
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), n, 255))
		}
	}
	return errs
}

func validateResizePolicy(policies []corev1.ContainerResizePolicy, at *field.Path, restart corev1.RestartPolicy) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range policies {
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(at.Index(i), p.ResourceName))
		}
		seen[p.ResourceName] = true
		errs = append(errs, check.OneOfOrRequired(p.ResourceName, at, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, check.OneOfOrRequired(p.RestartPolicy, at, corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

func validatePorts(ports []corev1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			bad := check.Messages(p.Name, at.Child("name"), validation.IsValidPortName(p.Name))
			if len(bad) == 0 && names[p.Name] {
				bad = field.ErrorList{field.Duplicate(at.Child("name"), p.Name)}
			}
			if len(bad) == 0 {
				names[p.Name] = true
			}
			errs = append(errs, bad...)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, check.Messages(p.ContainerPort, at.Child("containerPort"),
				validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, check.Messages(p.HostPort, at.Child("hostPort"), validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, check.OneOfOrRequired(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP,
			corev1.ProtocolUDP)...)
	}
	return errs
}

// validateHostPortConflicts finds host ports that two containers ask for.
func validateHostPortConflicts(list []corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range list {
		for j, p := range list[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen[key] {
				errs = append(errs, field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			seen[key] = true
		}
	}
	return errs
}
