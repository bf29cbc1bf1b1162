package job

import (
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/workload"
)

const (
	indexVariable = "JOB_COMPLETION_INDEX"
	// maxPrefix leaves room for what the server adds to make a name unique.
	maxPrefix = 58
)

// newPod makes a Pod of the template, tracked from its birth.
func (l *look) newPod() *corev1.Pod {
	p := workload.Pod(&l.job.Spec.Template, l.job, jobKind)
	if !hasFinalizer(p) {
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	}
	return p
}

func (l *look) newPods(n int) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = l.newPod()
	}
	return out
}

// newIndexedPods makes a Pod for each index, which it learns from its name, host name, label, annotation and environment.
func (l *look) newIndexedPods(all []int) []*corev1.Pod {
	var out []*corev1.Pod
	for _, i := range all {
		p, text := l.newPod(), strconv.Itoa(i)
		p.GenerateName = indexedPrefix(l.job.Name, "-"+text+"-")
		p.Spec.Hostname = fmt.Sprintf("%s-%d", l.job.Name, i)
		put(&p.Labels, batchv1.JobCompletionIndexAnnotation, text)
		put(&p.Annotations, batchv1.JobCompletionIndexAnnotation, text)
		for c := range p.Spec.InitContainers {
			tellIndex(&p.Spec.InitContainers[c])
		}
		for c := range p.Spec.Containers {
			tellIndex(&p.Spec.Containers[c])
		}
		if l.job.Spec.BackoffLimitPerIndex != nil {
			l.carryFailures(p, l.kept[i])
		}
		out = append(out, p)
	}
	return out
}

func put(to *map[string]string, key, value string) {
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

func tellIndex(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}})
}

// carryFailures writes into a new Pod how often its index has failed, the Pod that it replaces included.
func (l *look) carryFailures(p, replaces *corev1.Pod) {
	var counted, ignored int32
	if replaces != nil {
		counted = failures(replaces, batchv1.JobIndexFailureCountAnnotation)
		ignored = failures(replaces, batchv1.JobIndexIgnoredFailureCountAnnotation)
		if judge(l.job.Spec.PodFailurePolicy, replaces).counts() {
			counted++
		} else {
			ignored++
		}
	}
	put(&p.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(int(counted)))
	if ignored > 0 {
		put(&p.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(int(ignored)))
	}
}

// failures reads a count from an annotation; what is no count is 0.
func failures(p *corev1.Pod, annotation string) int32 {
	n, err := strconv.ParseInt(p.Annotations[annotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}
