package batch

import (
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// Jobs run pods to completion.
func Jobs() *kind.Def {
	return kind.Define(kind.Resource[batchv1.Job]{
		Group: "batch", Version: "v1", Kind: "Job", Plural: "jobs", Categories: []string{"all"},
		Spec:       func(j *batchv1.Job) any { return &j.Spec },
		Status:     func(j *batchv1.Job) any { return &j.Status },
		Generation: true,
		Default:    defaultJob,
		Prepare:    prepareJob,
		Validate:   validateJob,
		Warn:       warnJob,
		FieldError: "field label %q not supported for Job",
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
		Subs: []kind.Sub[batchv1.Job]{{Name: "status", Prepare: takeLabels, Validate: validateJobStatusUpdate}},
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
		{has(&j.Status, batchv1.JobComplete), "Complete"},
		{has(&j.Status, batchv1.JobFailed), "Failed"},
		{j.DeletionTimestamp != nil, "Terminating"},
		{has(&j.Status, batchv1.JobSuspended), "Suspended"},
		{has(&j.Status, batchv1.JobFailureTarget), "FailureTarget"},
		{has(&j.Status, batchv1.JobSuccessCriteriaMet), "SuccessCriteriaMet"},
	} {
		if s.is {
			return s.name
		}
	}
	return "Running"
}

func jobCompletions(j *batchv1.Job) any {
	parallelism := or(j.Spec.Parallelism, 0)
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

// has looks at the first condition of the type.
func has(s *batchv1.JobStatus, kind batchv1.JobConditionType) bool {
	for _, c := range s.Conditions {
		if c.Type == kind {
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
	fill(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		fill(&s.BackoffLimit, math.MaxInt32)
	}
	fill(&s.BackoffLimit, 6)
	fill(&s.CompletionMode, batchv1.NonIndexedCompletion)
	fill(&s.Suspend, false)
	if s.PodFailurePolicy != nil {
		fill(&s.PodReplacementPolicy, batchv1.Failed)
	}
	fill(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	fill(&s.ManualSelector, false)
	// A new job takes its labels later, with those that will be generated.
	if _, generated := s.Template.Labels[batchv1.ControllerUidLabel]; generated || *s.ManualSelector {
		takeLabels(j, nil)
	}
}

// defaultJobTemplate is the part of defaulting that the template of a cron job shares with a job.
func defaultJobTemplate(s *batchv1.JobSpec) {
	core.DefaultPodTemplate(&s.Template)
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

// fill sets what is absent.
func fill[V any](field **V, value V) {
	if *field == nil {
		*field = &value
	}
}

func or[V any](p *V, otherwise V) V {
	if p == nil {
		return otherwise
	}
	return *p
}
