package batch

import (
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// Jobs run pods to completion.
func Jobs() *kind.Def {
	return kind.Define(kind.Resource[batchv1.Job]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Plural: "jobs",
			Categories: []string{"all"},
			Generation: true,
			FieldError: "field label %q not supported for Job",
		},
		Spec:     func(j *batchv1.Job) any { return &j.Spec },
		Status:   func(j *batchv1.Job) any { return &j.Status },
		Default:  defaultJob,
		Prepare:  prepareJob,
		Validate: validateJob,
		Warn:     warnJob,
		Ready:    func(j *batchv1.Job) bool { return hasCondition(&j.Status, batchv1.JobComplete) },
		Columns: []kind.Column[batchv1.Job]{
			kind.NameColumn[batchv1.Job](),
			{Name: "Status", Description: "Status of the job.", Value: jobState},
			{Name: "Completions", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"], Value: jobCompletions},
			{Name: "Duration", Description: "Time required to complete the job.", Value: jobDuration},
			kind.AgeColumn[batchv1.Job](),
			kind.ContainersColumn(jobContainers),
			kind.ImagesColumn(jobContainers),
			{Name: "Selector", Wide: true, Description: batchv1.JobSpec{}.SwaggerDoc()["selector"],
				Value: func(j *batchv1.Job) any { return metav1.FormatLabelSelector(j.Spec.Selector) }},
		},
		Fields: map[string]func(*batchv1.Job) string{
			"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
		},
		Subs: []kind.Sub[batchv1.Job]{{Name: "status", Prepare: copyPodLabels, Validate: validateJobStatusUpdate}},
		Delete: kind.Deletion[batchv1.Job]{
			Propagation: metav1.DeletePropagationOrphan,
			Warning: "child pods are preserved by default when jobs are deleted; " +
				"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		},
	})
}

func jobContainers(j *batchv1.Job) []corev1.Container { return j.Spec.Template.Spec.Containers }

func jobState(j *batchv1.Job) any {
	type state struct {
		is   bool
		name string
	}
	for _, s := range []state{
		{hasCondition(&j.Status, batchv1.JobComplete), "Complete"},
		{hasCondition(&j.Status, batchv1.JobFailed), "Failed"},
		{j.DeletionTimestamp != nil, "Terminating"},
		{hasCondition(&j.Status, batchv1.JobSuspended), "Suspended"},
		{hasCondition(&j.Status, batchv1.JobFailureTarget), "FailureTarget"},
		{hasCondition(&j.Status, batchv1.JobSuccessCriteriaMet), "SuccessCriteriaMet"},
	} {
		if s.is {
			return s.name
		}
	}
	return "Running"
}

func jobCompletions(j *batchv1.Job) any {
	parallelism := ptr.Deref(j.Spec.Parallelism, 0)
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job) any {
	switch {
	case j.Status.StartTime == nil:
		return ""
	case j.Status.CompletionTime == nil:
		return duration.HumanDuration(time.Since(j.Status.StartTime.Time))
	}
	return duration.HumanDuration(j.Status.CompletionTime.Sub(j.Status.StartTime.Time))
}

// hasCondition reports whether the first condition of a type is true.
func hasCondition(s *batchv1.JobStatus, conditionType batchv1.JobConditionType) bool {
	for _, c := range s.Conditions {
		if c.Type == conditionType {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func defaultJob(j *batchv1.Job) {
	defaultJobTemplate(&j.Spec)
	s := &j.Spec
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = new(int32(1))
	}
	defaulting.IfNil(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		defaulting.IfNil(&s.BackoffLimit, math.MaxInt32)
	}
	defaulting.IfNil(&s.BackoffLimit, 6)
	defaulting.IfNil(&s.CompletionMode, batchv1.NonIndexedCompletion)
	defaulting.IfNil(&s.Suspend, false)
	if s.PodFailurePolicy != nil {
		defaulting.IfNil(&s.PodReplacementPolicy, batchv1.Failed)
	}
	defaulting.IfNil(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	defaulting.IfNil(&s.ManualSelector, false)
	// A new job gets its labels later, with the generated ones.
	if _, generated := s.Template.Labels[batchv1.ControllerUidLabel]; generated || *s.ManualSelector {
		copyPodLabels(j, nil)
	}
}

// defaultJobTemplate fills in what a job and the job template of a cron job leave out.
func defaultJobTemplate(s *batchv1.JobSpec) {
	podspec.DefaultTemplate(&s.Template)
	if s.PodFailurePolicy == nil {
		return
	}
	for i := range s.PodFailurePolicy.Rules {
		for j := range s.PodFailurePolicy.Rules[i].OnPodConditions {
			if p := &s.PodFailurePolicy.Rules[i].OnPodConditions[j]; p.Status == "" {
				p.Status = corev1.ConditionTrue
			}
		}
	}
}
