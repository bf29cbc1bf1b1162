package job

import (
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/lib/workload"
)

const (
	indexVariable = "JOB_COMPLETION_INDEX"
	// maxPrefix leaves room for the suffix that the server adds to generate a name.
	maxPrefix = 58
)

// newPod returns a Pod of the template with the tracking finalizer.
func (l *jobState) newPod() *corev1.Pod {
	p := workload.Pod(&l.job.Spec.Template, l.job, jobKind)
	if !hasFinalizer(p) {
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	}
	return p
}

// newIndexedPod returns a Pod for an index, with the index in its name, host name, label, annotation and environment; noIndex stands
// for none.
func (l *jobState) newIndexedPod(index int) *corev1.Pod {
	p := l.newPod()
	if index == noIndex {
		return p
	}
	text := strconv.Itoa(index)
	p.GenerateName = indexedPrefix(l.job.Name, "-"+text+"-")
	p.Spec.Hostname = fmt.Sprintf("%s-%d", l.job.Name, index)
	setKey(&p.Labels, batchv1.JobCompletionIndexAnnotation, text)
	setKey(&p.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	for c := range p.Spec.InitContainers {
		setIndexVariable(&p.Spec.InitContainers[c])
	}
	for c := range p.Spec.Containers {
		setIndexVariable(&p.Spec.Containers[c])
	}
	if l.job.Spec.BackoffLimitPerIndex != nil {
		l.setFailureCounts(p, l.keptForReplacement[index])
	}
	return p
}

func setKey(to *map[string]string, key, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = value
}

func indexedPrefix(job, suffix string) string {
	if len(job)+len(suffix) > maxPrefix {
		job = job[:maxPrefix-len(suffix)]
	}
	return job + suffix
}

// setIndexVariable adds the environment variable with the completion index to a container.
func setIndexVariable(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}})
}

// setFailureCounts sets the annotations of a new Pod with the number of failures of its index, including the Pod it replaces.
func (l *jobState) setFailureCounts(p, replaces *corev1.Pod) {
	var counted, ignored int32
	if replaces != nil {
		counted = failureCount(replaces, batchv1.JobIndexFailureCountAnnotation)
		ignored = failureCount(replaces, batchv1.JobIndexIgnoredFailureCountAnnotation)
		if applyFailurePolicy(l.job.Spec.PodFailurePolicy, replaces).counts() {
			counted++
		} else {
			ignored++
		}
	}
	setKey(&p.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(int(counted)))
	if ignored > 0 {
		setKey(&p.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(int(ignored)))
	}
}

// failureCount parses a failure count in an annotation; an invalid one is 0.
func failureCount(p *corev1.Pod, annotation string) int32 {
	n, err := strconv.ParseInt(p.Annotations[annotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}
