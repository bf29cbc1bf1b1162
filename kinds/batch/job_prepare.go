package batch

import (
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
)

// The labels by which a job selects its pods; the legacy ones have no prefix.
const (
	oldNameLabel = "job-name"
	oldUIDLabel  = "controller-uid"
)

func prepareJob(j, old *batchv1.Job) {
	if old == nil {
		if !ptr.Deref(j.Spec.ManualSelector, false) {
			generateSelector(j)
		}
		prepareJobSpec(&j.Spec, nil)
		copyPodLabels(j, nil)
		return
	}
	prepareJobSpec(&j.Spec, &old.Spec)
	copyPodLabels(j, nil)
}

// copyPodLabels sets the labels of a job without labels to those of its pods, the generated ones included.
func copyPodLabels(j, _ *batchv1.Job) {
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

// prepareJobSpec drops the fields of disabled features.
func prepareJobSpec(s, old *batchv1.JobSpec) {
	if old == nil || old.Scheduling == nil {
		s.Scheduling = nil
	}
	podspec.DropDisabledTemplateFields(&s.Template, oldTemplate(old))
}

// generateSelector sets the selector and the pod labels by which a job selects its own pods only. Labels that a
// client has set stay, and validation refuses wrong ones.
func generateSelector(j *batchv1.Job) {
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	keep := func(labels map[string]string, key, value string) {
		if _, there := labels[key]; !there {
			labels[key] = value
		}
	}
	keep(t.Labels, oldNameLabel, j.Name)
	keep(t.Labels, batchv1.JobNameLabel, j.Name)
	keep(t.Labels, oldUIDLabel, string(j.UID))
	keep(t.Labels, batchv1.ControllerUidLabel, string(j.UID))
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	keep(j.Spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(j.UID))
}

func oldTemplate(s *batchv1.JobSpec) *corev1.PodTemplateSpec {
	if s == nil {
		return nil
	}
	return &s.Template
}

func warnJob(j, old *batchv1.Job) []string {
	path := field.NewPath("spec")
	switch {
	case old == nil:
		return append(podspec.NameWarnings(j.Name), warnJobSpec(path, &j.Spec, nil)...)
	case j.Generation != old.Generation:
		return warnJobSpec(path, &j.Spec, &old.Spec)
	}
	return nil
}

func warnJobSpec(path *field.Path, s, old *batchv1.JobSpec) []string {
	var warnings []string
	if isIndexed(s) && ptr.Deref(s.Completions, 0) > manyCompletions && ptr.Deref(s.Parallelism, 0) > manyFailures {
		warnings = append(warnings, fmt.Sprintf("%s: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail", path))
	}
	return append(warnings, podspec.TemplateWarnings(path.Child("template"), &s.Template, oldTemplate(old))...)
}

func isIndexed(s *batchv1.JobSpec) bool {
	return ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}
