// Package podkind declares Pods: what differs between a Pod and the pod template of a workload (updates, status, resize, warnings), and
// the subresources that bind, evict and stream.
package podkind

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/core/connectoptions"
	"proa.dev/kinds/kind"
)

// Pods are the containers that run together on one node.
func Pods() *kind.Def {
	return kind.Define(kind.Resource[corev1.Pod]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Plural: "pods", Short: []string{"po"},
			Categories: []string{"all"},
			Generation: true,
			IndexField: "spec.nodeName",
		},
		Spec:     func(p *corev1.Pod) any { return &p.Spec },
		Status:   func(p *corev1.Pod) any { return &p.Status },
		Default:  defaultPod,
		Prepare:  preparePod,
		Validate: validatePod,
		Warn:     warnPod,
		Columns:  podColumns(), RowConditions: podRowConditions,
		Ready:    isReadyOrDone,
		Fields:   podFields(),
		ForNodes: podForNodes(),
		Delete:   kind.Deletion[corev1.Pod]{Grace: gracePeriod, ReturnsObject: true},
		Subs: []kind.Sub[corev1.Pod]{
			{Name: "status", Prepare: preparePodStatus, Validate: validatePodStatus, Warn: warnPodStatus,
				Reset: []string{"spec", "metadata.deletionTimestamp", "metadata.ownerReferences"}},
			{Name: "ephemeralcontainers", Prepare: prepareEphemeralContainers, Validate: validateEphemeralContainers},
			{Name: "resize", Prepare: prepareResize, Validate: validateResize},
			{Name: "binding", Body: bindingBody(), Do: bindPod},
			{Name: "eviction", Body: &kind.Body{
				GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("Eviction"),
				New:              func() kind.Object { return &policyv1.Eviction{} },
			}, Do: evictPod},
			{Name: "log", Verbs: []string{"get"}, Connect: connectLog},
			{Name: "exec", Body: connectoptions.Body("PodExecOptions", connectoptions.Exec), Connect: connectExec, RequiredVerb: "create"},
			{Name: "attach", Body: connectoptions.Body("PodAttachOptions", connectoptions.Attach), Connect: connectAttach,
				RequiredVerb: "create"},
			{Name: "portforward", Body: connectoptions.Body("PodPortForwardOptions", connectoptions.PortForward),
				Connect: connectPortForward, RequiredVerb: "create"},
			{Name: "proxy", Body: connectoptions.Body("PodProxyOptions", connectoptions.PodProxy), Connect: connectProxy,
				Verbs: connectoptions.ProxyVerbs()},
		},
	})
}

func podFields() map[string]func(*corev1.Pod) string {
	node := func(p *corev1.Pod) string { return p.Spec.NodeName }
	return map[string]func(*corev1.Pod) string{
		"spec.nodeName":            node,
		"spec.host":                node, // its name in the first versions of the API
		"spec.restartPolicy":       func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
		"spec.schedulerName":       func(p *corev1.Pod) string { return p.Spec.SchedulerName },
		"spec.serviceAccountName":  func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
		"spec.hostNetwork":         func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) },
		"status.phase":             func(p *corev1.Pod) string { return string(p.Status.Phase) },
		"status.podIP":             podIP,
		"status.podIPs":            func(*corev1.Pod) string { return "" }, // accepted, but matches nothing
		"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
	}
}

func podIP(p *corev1.Pod) string {
	if len(p.Status.PodIPs) == 0 {
		return ""
	}
	return p.Status.PodIPs[0].IP
}

// gracePeriod returns the grace period of a pod in seconds. A pod that has no node, or has ended, is removed at once.
func gracePeriod(p *corev1.Pod, options *metav1.DeleteOptions) int64 {
	if p.Spec.NodeName == "" || isTerminal(p) {
		return 0
	}
	var seconds int64
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	if s := options.GracePeriodSeconds; s != nil {
		seconds = *s
	}
	if seconds < 0 {
		return 1
	}
	return seconds
}

func isTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}
