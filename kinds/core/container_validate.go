package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// surroundings is what the rules of a container need to know about its pod.
type surroundings struct {
	spec    *corev1.PodSpec
	volumes map[string]*corev1.VolumeSource // the valid ones
	claims  []string                        // the names of the resource claims, sorted
	allow   PodAllowances
}

func (s *surroundings) hostUsers() bool { return s.spec.HostUsers == nil || *s.spec.HostUsers }

// container checks what the rules of all three kinds of containers share.
func (s *surroundings) container(c *corev1.Container, at *field.Path) field.ErrorList {
	errs := requiredDNSLabel(c.Name, at.Child("name"))
	errs = append(errs, required(c.Image, at.Child("image"))...)
	errs = append(errs, oneOfOrRequired(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, s.mounts(c, at.Child("volumeMounts"))...)
	errs = append(errs, s.devices(c, at.Child("volumeDevices"))...)
	errs = append(errs, validatePullPolicy(c.ImagePullPolicy, at.Child("imagePullPolicy"))...)
	errs = append(errs, validateResources(&c.Resources, containerResource, s.claims, at.Child("resources"), s.allow)...)
	errs = append(errs, validateResizePolicy(c.ResizePolicy, at.Child("resizePolicy"), s.spec.RestartPolicy)...)
	return append(errs, validateSecurityContext(c.SecurityContext, at.Child("securityContext"), s.hostUsers(), s.allow)...)
}

// running checks the parts that only containers that keep running may have.
func (s *surroundings) running(c *corev1.Container, at *field.Path) field.ErrorList {
	grace := s.spec.TerminationGracePeriodSeconds
	errs := validateLifecycle(c.Lifecycle, grace, at.Child("lifecycle"), s.spec.OS)
	errs = append(errs, validateLiveness(c.LivenessProbe, grace, at.Child("livenessProbe"))...)
	errs = append(errs, validateReadiness(c.ReadinessProbe, grace, at.Child("readinessProbe"))...)
	return append(errs, validateLiveness(c.StartupProbe, grace, at.Child("startupProbe"))...)
}

func (s *surroundings) containers(at *field.Path) field.ErrorList {
	list := s.spec.Containers
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range list {
		c, at := &list[i], at.Index(i)
		errs = append(errs, s.container(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, s.running(c, at)...)
		errs = append(errs, validateRestart(c, at)...)
	}
	return append(errs, hostPortConflicts(list, at)...)
}

func (s *surroundings) initContainers(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range s.spec.Containers {
		names[s.spec.Containers[i].Name] = true
	}
	for i := range s.spec.InitContainers {
		c, in := &s.spec.InitContainers[i], at.Index(i)
		errs = append(errs, s.container(c, in)...)
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
		errs = append(errs, hostPortConflicts(s.spec.InitContainers[i:i+1], at)...)
		if isSidecar(c) {
			errs = append(errs, s.running(c, in)...)
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
			if p.RestartPolicy == corev1.RestartContainer && !s.allow.restartOfInitOnResize {
				errs = append(errs, field.Invalid(in.Child("resizePolicy").Index(j).Child("restartPolicy"), p.RestartPolicy,
					"must not be set to 'RestartContainer' for non-sidecar initContainers"))
			}
		}
	}
	return errs
}

// ephemeralFields are the fields a container added to a running pod may have.
func ephemeralFields() []string {
	return []string{"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
		"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY"}
}

func (s *surroundings) ephemeralContainers(at *field.Path) field.ErrorList {
	const text = "cannot be set for an Ephemeral Container"
	var errs field.ErrorList
	others, names := map[string]bool{}, map[string]bool{}
	for list, c := range containersOf(s.spec) {
		if list != "ephemeralContainers" {
			others[c.Name], names[c.Name] = true, true
		}
	}
	for i := range s.spec.EphemeralContainers {
		e, at := &s.spec.EphemeralContainers[i], at.Index(i)
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		errs = append(errs, s.container(c, at)...)
		errs = append(errs, validatePodImage(c, at)...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		if e.TargetContainerName != "" && !others[e.TargetContainerName] {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		errs = append(errs, onlyFields(e.EphemeralContainerCommon, text, at, ephemeralFields()...)...)
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

// validatePodImage checks an image more strictly than templates do.
func validatePodImage(c *corev1.Container, at *field.Path) field.ErrorList {
	if c.Image != strings.TrimSpace(c.Image) {
		return field.ErrorList{field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace")}
	}
	return nil
}

// isSidecar says whether an init container goes on running beside the others.
func isSidecar(c *corev1.Container) bool {
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
		errs = append(errs, oneOf(*c.RestartPolicy, at.Child("restartPolicy"),
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	}
	rules := at.Child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > 20 {
		errs = append(errs, field.TooMany(rules, n, 20))
	}
	for i, rule := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, oneOf(rule.Action, at.Child("action"),
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, oneOf(rule.ExitCodes.Operator, at.Child("exitCodes", "operator"),
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
		errs = append(errs, oneOfOrRequired(p.ResourceName, at, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, oneOfOrRequired(p.RestartPolicy, at, corev1.NotRequired, corev1.RestartContainer)...)
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
			errs = append(errs, check.Messages(p.ContainerPort, at.Child("containerPort"), validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, check.Messages(p.HostPort, at.Child("hostPort"), validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, oneOfOrRequired(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	}
	return errs
}

// hostPortConflicts finds ports of the host that two containers want.
func hostPortConflicts(list []corev1.Container, at *field.Path) field.ErrorList {
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
