package podkind

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podspec"
)

// warnPod returns the warnings about a new pod. Updates get none: they come from controllers.
func warnPod(p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	var texts []string
	for _, c := range containerspec.All(&p.Spec) {
		annotation, set := p.Annotations[podspec.AppArmorAnnotationPrefix+c.Name]
		if !set || podspec.IsWindows(&p.Spec) {
			continue
		}
		profile := podspec.AppArmorProfile(annotation)
		if c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil {
			if profile != nil && equality.Semantic.DeepEqual(profile, podspec.PodAppArmorProfile(&p.Spec)) {
				continue
			}
		} else if !equality.Semantic.DeepEqual(profile, c.SecurityContext.AppArmorProfile) {
			continue
		}
		texts = append(texts, fmt.Sprintf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`,
			field.NewPath("metadata", "annotations").Key(podspec.AppArmorAnnotationPrefix+c.Name)))
	}
	if msgs := validation.IsDNS1123Label(p.Name); len(msgs) != 0 {
		texts = append(texts, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs))
	}
	return append(texts, podspec.Warnings(nil, &p.Spec, &p.ObjectMeta)...)
}

func warnPodStatus(p, _ *corev1.Pod) []string {
	var texts []string
	for i, ip := range p.Status.PodIPs {
		texts = append(texts, validation.GetWarningsForIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range p.Status.HostIPs {
		texts = append(texts, validation.GetWarningsForIP(field.NewPath("status", "hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return texts
}
