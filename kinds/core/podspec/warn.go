package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
)

// warnings collects the warnings about a pod spec. at is the path of the template, and nil for a pod.
type warnings struct {
	at    *field.Path
	texts []string
}

func (w *warnings) add(at *field.Path, format string, args ...any) {
	w.texts = append(w.texts, fmt.Sprintf("%s: %s", at, fmt.Sprintf(format, args...)))
}

func (w *warnings) spec(names ...string) *field.Path { return w.at.Child("spec", names...) }

// Warnings returns what a client is warned of about a Pod, or about the template of one at a path.
func Warnings(at *field.Path, s *corev1.PodSpec, meta *metav1.ObjectMeta) []string {
	w := &warnings{at: at}
	w.placement(s)
	annotations := at.Child("metadata", "annotations")
	for _, key := range []string{"scheduler.alpha.kubernetes.io/critical-pod", "security.alpha.kubernetes.io/sysctls",
		"security.alpha.kubernetes.io/unsafe-sysctls"} {
		if _, set := meta.Annotations[key]; !set {
			continue
		}
		if strings.HasPrefix(key, "security") {
			w.add(annotations.Key(key), `non-functional in v1.11+; use the "sysctls" field instead`)
		} else {
			w.add(annotations.Key(key), `non-functional in v1.16+; use the "priorityClassName" field instead`)
		}
	}
	w.volumes(s)
	w.texts = append(w.texts, overlapWarnings(s.Volumes)...)
	w.repeated(s)
	for _, res := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.fraction(s.Overhead, res, w.spec("overhead"))
	}
	if s.SecurityContext == nil || s.SecurityContext.SeccompProfile == nil {
		w.seccomp(meta, seccompPod)
	}
	for c, at := range containerspec.WithPaths(s, w.spec()) {
		w.container(s, meta, c, at)
	}
	w.ports(s)
	if g := s.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		w.add(w.spec("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.selectors(s)
	if s.DNSConfig != nil {
		for i, ip := range s.DNSConfig.Nameservers {
			w.texts = append(w.texts, validation.GetWarningsForIP(w.spec("dnsConfig", "nameservers").Index(i), ip)...)
		}
	}
	for i, alias := range s.HostAliases {
		w.texts = append(w.texts, validation.GetWarningsForIP(w.spec("hostAliases").Index(i).Child("ip"), alias.IP)...)
	}
	return w.texts
}

func (w *warnings) placement(s *corev1.PodSpec) {
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if text, old := podplacement.DeprecatedNodeLabel(key); old {
			w.add(w.spec("nodeSelector").Key(key), "%s", text)
		}
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		n, at := s.Affinity.NodeAffinity, w.spec("affinity", "nodeAffinity")
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			for i := range r.NodeSelectorTerms {
				w.nodeTerm(&r.NodeSelectorTerms[i], false,
					at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))
			}
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			w.nodeTerm(&n.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference, true,
				at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))
		}
	}
	for i, c := range s.TopologySpreadConstraints {
		at := w.spec("topologySpreadConstraints").Index(i)
		if text, old := podplacement.DeprecatedNodeLabel(c.TopologyKey); old {
			w.add(at.Child("topologyKey"), "%s is %s", c.TopologyKey, text)
		}
		w.selector(c.LabelSelector, at)
	}
}

func (w *warnings) nodeTerm(t *corev1.NodeSelectorTerm, values bool, at *field.Path) {
	for i, e := range t.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		if text, old := podplacement.DeprecatedNodeLabel(e.Key); old {
			w.add(at.Child("key"), "%s is %s", e.Key, text)
		}
		for j, v := range e.Values {
			if !values {
				break
			}
			for _, msg := range validation.IsValidLabelValue(v) {
				w.add(at.Child("values").Index(j), "%s is invalid, %s", v, msg)
			}
		}
	}
}

func (w *warnings) selector(s *metav1.LabelSelector, at *field.Path) {
	if s == nil {
		w.add(at.Child("labelSelector"), "a null labelSelector results in matching no pod")
	}
}

// selectors warns about affinity terms that match no pod.
func (w *warnings) selectors(s *corev1.PodSpec) {
	if s.Affinity == nil {
		return
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range required {
			w.selector(required[i].LabelSelector, at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
		}
		for i := range preferred {
			w.selector(preferred[i].PodAffinityTerm.LabelSelector,
				at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
		}
	}
	if a := s.Affinity.PodAffinity; a != nil {
		terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution,
			w.spec("affinity", "podAffinity"))
	}
	if a := s.Affinity.PodAntiAffinity; a != nil {
		terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution,
			w.spec("affinity", "podAntiAffinity"))
	}
}

func (w *warnings) volumes(s *corev1.PodSpec) {
	const gone25, gone31 = "deprecated in v1.22, non-functional in v1.25+", "deprecated in v1.28, non-functional in v1.31+"
	for i := range s.Volumes {
		v, at := &s.Volumes[i], w.spec("volumes").Index(i)
		for _, old := range []struct {
			set        bool
			name, text string
		}{
			{v.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
			{v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
			{v.Flocker != nil, "flocker", gone25},
			{v.StorageOS != nil, "storageOS", gone25},
			{v.Quobyte != nil, "quobyte", gone25},
			{v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		} {
			if old.set {
				w.add(at.Child(old.name), "%s", old.text)
			}
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			r, at := &v.Ephemeral.VolumeClaimTemplate.Spec.Resources, at.Child("ephemeral", "volumeClaimTemplate", "spec", "resources")
			w.fraction(r.Requests, corev1.ResourceStorage, at.Child("requests"))
			w.fraction(r.Limits, corev1.ResourceStorage, at.Child("limits"))
		}
		if v.CephFS != nil {
			w.add(at.Child("cephfs"), gone31)
		}
		if v.RBD != nil {
			w.add(at.Child("rbd"), gone31)
		}
	}
}

// repeated warns about duplicate merge keys in lists.
func (w *warnings) repeated(s *corev1.PodSpec) {
	seen := map[string]bool{}
	for i, alias := range s.HostAliases {
		if seen[alias.IP] {
			w.add(w.spec("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		seen[alias.IP] = true
	}
	seen = map[string]bool{}
	for i, secret := range s.ImagePullSecrets {
		if seen[secret.Name] {
			w.add(w.spec("imagePullSecrets").Index(i).Child("name"), "duplicate name %q", secret.Name)
		}
		seen[secret.Name] = true
	}
	for i, secret := range s.ImagePullSecrets {
		if secret.Name == "" {
			w.add(w.spec("imagePullSecrets").Index(i).Child("name"), "invalid empty name %q", "")
		}
	}
}

func (w *warnings) fraction(list corev1.ResourceList, res corev1.ResourceName, at *field.Path) {
	if q, set := list[res]; set && q.MilliValue()%1000 != 0 {
		w.add(at.Key(string(res)), "fractional byte value %q is invalid, must be an integer", q.String())
	}
}

func (w *warnings) seccomp(meta *metav1.ObjectMeta, key string) {
	if _, set := meta.Annotations[key]; set {
		w.add(w.at.Child("metadata", "annotations").Key(key), `non-functional in v1.27+; use the "seccompProfile" field instead`)
	}
}

func (w *warnings) container(s *corev1.PodSpec, meta *metav1.ObjectMeta, c *corev1.Container, at *field.Path) {
	if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
		w.seccomp(meta, seccompContainer+c.Name)
	}
	// Pods get this warning when the annotation is converted to the field.
	if w.at != nil && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) {
		key := AppArmorAnnotationPrefix + c.Name
		pod := PodAppArmorProfile(s)
		if annotation, set := meta.Annotations[key]; set && (pod == nil || !equality.Semantic.DeepEqual(pod, AppArmorProfile(annotation))) {
			w.add(w.at.Child("metadata", "annotations").Key(key), `deprecated since v1.30; use the "appArmorProfile" field instead`)
		}
	}
	for _, res := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.fraction(c.Resources.Limits, res, at.Child("resources", "limits"))
		w.fraction(c.Resources.Requests, res, at.Child("resources", "requests"))
	}
	seen := map[string]bool{}
	for i, e := range c.Env {
		ref := "$(" + e.Name + ")"
		if seen[e.Name] && (e.ValueFrom != nil || e.Value == ref || !strings.Contains(e.Value, ref)) {
			w.add(at.Child("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", e.Name)
		}
		seen[e.Name] = true
	}
}

// ports warns about ports that several containers of the pod declare.
func (w *warnings) ports(s *corev1.PodSpec) {
	type place struct {
		at   *field.Path
		port corev1.ContainerPort
	}
	taken := map[string][]place{}
	for c, at := range containerspec.WithPaths(s, w.spec()) {
		for i, p := range c.Ports {
			at := at.Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				w.add(at, "hostIP set without hostPort: %s", portText(p))
			}
			key := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
			for _, other := range taken[key] {
				switch {
				case p.HostIP == other.port.HostIP && p.HostPort == other.port.HostPort:
					w.add(at, "duplicate port definition with %s", other.at)
				case p.HostPort == 0 || other.port.HostPort == 0:
					w.add(at, "overlapping port definition with %s", other.at)
				case p.HostPort == other.port.HostPort && (p.HostIP == "") != (other.port.HostIP == ""):
					w.add(at, "dangerously ambiguous port definition with %s", other.at)
				}
			}
			taken[key] = append(taken[key], place{at, p})
		}
	}
	names := map[string]*field.Path{}
	for c, at := range containerspec.WithPaths(s, w.spec()) {
		for i, p := range c.Ports {
			at := at.Child("ports").Index(i)
			if other := names[p.Name]; other != nil {
				w.add(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", p.Name, other, other)
			} else if p.Name != "" {
				names[p.Name] = at
			}
		}
	}
}

// portText returns a port in the form in which upstream prints it.
func portText(p corev1.ContainerPort) string {
	return fmt.Sprintf("{Name:%s HostPort:%d ContainerPort:%d Protocol:%s HostIP:%s}", p.Name, p.HostPort, p.ContainerPort, p.Protocol,
		p.HostIP)
}
