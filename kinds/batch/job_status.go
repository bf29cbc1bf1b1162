package batch

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
)

// facts are the properties of a status that the rules about it compare.
type facts struct{ complete, failed, failing, succeeding, finished bool }

func factsOf(s *batchv1.JobStatus) facts {
	is := func(t batchv1.JobConditionType) bool { return anyCondition(s, t, corev1.ConditionTrue) }
	f := facts{complete: is(batchv1.JobComplete), failed: is(batchv1.JobFailed), failing: is(batchv1.JobFailureTarget),
		succeeding: is(batchv1.JobSuccessCriteriaMet)}
	f.finished = f.complete || f.failed
	return f
}

func anyCondition(s *batchv1.JobStatus, conditionType batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == conditionType && c.Status == status })
}

// rule is something that is forbidden in a status. It is checked only when the fields that it is about have changed,
// so that a status that breaks it already can still be updated.
type rule struct {
	changed, broken bool
	err             func() *field.Error
}

func checkRules(rules []rule) field.ErrorList {
	var errs field.ErrorList
	for _, r := range rules {
		if r.changed && r.broken {
			errs = append(errs, r.err())
		}
	}
	return errs
}

func validateJobStatusUpdate(j, old *batchv1.Job) field.ErrorList {
	errs := validateCounts(&j.Status)
	errs = append(errs, checkRules(statusRules(j, old))...)
	return append(errs, checkRules(transitionRules(j, old))...)
}

func validateCounts(s *batchv1.JobStatus) field.ErrorList {
	path := field.NewPath("status")
	errs := check.NonNegative(int64(s.Active), path.Child("active"))
	errs = append(errs, check.NonNegative(int64(s.Succeeded), path.Child("succeeded"))...)
	errs = append(errs, check.NonNegative(int64(s.Failed), path.Child("failed"))...)
	errs = append(errs, check.NonNegativePtr(s.Ready, path.Child("ready"))...)
	errs = append(errs, check.NonNegativePtr(s.Terminating, path.Child("terminating"))...)
	if s.UncountedTerminatedPods == nil {
		return errs
	}
	seen := map[types.UID]bool{}
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", s.UncountedTerminatedPods.Succeeded}, {"failed", s.UncountedTerminatedPods.Failed}} {
		for i, uid := range list.uids {
			path := path.Child("uncountedTerminatedPods", list.name).Index(i)
			if uid == "" {
				errs = append(errs, field.Invalid(path, uid, "must not be empty"))
			} else if seen[uid] {
				errs = append(errs, field.Duplicate(path, uid))
			}
			seen[uid] = true
		}
	}
	return errs
}

// conditionsError returns an error about the conditions that quotes no value.
func conditionsError(text string) func() *field.Error {
	return func() *field.Error {
		return field.Invalid(field.NewPath("status", "conditions"), field.OmitValueType{}, text)
	}
}

func invalidError(name string, value any, text string) func() *field.Error {
	return func() *field.Error { return field.Invalid(field.NewPath("status", name), value, text) }
}

func requiredError(name, text string) func() *field.Error {
	return func() *field.Error { return field.Required(field.NewPath("status", name), text) }
}

func statusRules(j, old *batchv1.Job) []rule {
	s, was := &j.Status, &old.Status
	f, o := factsOf(s), factsOf(was)
	start, completion := !ptr.Equal(was.StartTime, s.StartTime), !ptr.Equal(was.CompletionTime, s.CompletionTime)
	finishedChanged, completeChanged, failedChanged := f.finished != o.finished, f.complete != o.complete, f.failed != o.failed
	active := was.Active != s.Active
	completed, failedIndexes := was.CompletedIndexes != s.CompletedIndexes, !equality.Semantic.DeepEqual(was.FailedIndexes, s.FailedIndexes)
	nothingToDo := ptr.Deref(j.Spec.Suspend, false) && j.Spec.Completions != nil && *j.Spec.Completions == 0
	uncounted := s.UncountedTerminatedPods
	rules := []rule{
		{completeChanged || failedChanged, f.complete && f.failed, conditionsError("cannot set Complete=True and Failed=true conditions")},
		{completeChanged || f.failing != o.failing, f.complete && f.failing,
			conditionsError("cannot set Complete=True and FailureTarget=true conditions")},
		{completeChanged || completion, s.CompletionTime != nil && !f.complete,
			invalidError("completionTime", s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")},
		{completeChanged || completion, s.CompletionTime == nil && f.complete,
			requiredError("completionTime", "completionTime is required for Complete jobs")},
		{start || completion, s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime),
			invalidError("completionTime", s.CompletionTime, "must be equal to or after `startTime`")},
		{failedChanged || failedIndexes, f.failed && !f.failing, conditionsError("cannot set Failed=True condition without the FailureTarget=true condition")},
		{completeChanged || f.succeeding != o.succeeding, f.complete && !f.succeeding, conditionsError("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")},
		{finishedChanged || active, s.Active > 0 && f.finished, invalidError("active", s.Active, "active>0 is invalid for finished job")},
		{(finishedChanged || start) && !nothingToDo, s.StartTime == nil && f.finished,
			requiredError("startTime", "startTime is required for finished job")},
		{finishedChanged || !equality.Semantic.DeepEqual(was.UncountedTerminatedPods, uncounted), f.finished && uncounted != nil &&
			len(uncounted.Failed)+len(uncounted.Succeeded) > 0,
			invalidError("uncountedTerminatedPods", check.GoFields(uncounted), "must be empty for finished job")},
	}
	rules = append(rules, indexRules(&j.Spec, s, completed, failedIndexes)...)
	return append(rules, []rule{
		{finishedChanged || !equality.Semantic.DeepEqual(was.Terminating, s.Terminating), ptr.Deref(s.Terminating, 0) > 0 && f.finished,
			invalidError("terminating", s.Terminating, "terminating>0 is invalid for finished job")},
		{!equality.Semantic.DeepEqual(was.Ready, s.Ready) || active, s.Ready != nil && *s.Ready > s.Active,
			invalidError("ready", ptr.Deref(s.Ready, 0), "cannot set more ready pods than active")},
		{true, f.succeeding && f.failed, conditionsError("cannot set SuccessCriteriaMet=True and Failed=true conditions")},
		{true, f.succeeding && f.failing, conditionsError("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")},
		{true, j.Spec.SuccessPolicy != nil && !f.succeeding && f.complete, conditionsError("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")},
	}...)
}

func indexRules(spec *batchv1.JobSpec, s *batchv1.JobStatus, completed, failedChanged bool) []rule {
	completions, failed := ptr.Deref(spec.Completions, 0), ptr.Deref(s.FailedIndexes, "")
	var badCompleted, badFailed, overlapping error
	if spec.Completions != nil {
		_, badCompleted = parseIndexes(s.CompletedIndexes, completions)
		if spec.BackoffLimitPerIndex != nil && s.FailedIndexes != nil {
			_, badFailed = parseIndexes(failed, completions)
		}
		if s.CompletedIndexes != "" && failed != "" {
			overlapping = findOverlap(s.CompletedIndexes, failed, completions)
		}
	}
	text := func(err error, prefix string) string {
		if err == nil {
			return ""
		}
		return prefix + err.Error()
	}
	return []rule{
		{completed, badCompleted != nil,
			invalidError("completedIndexes", s.CompletedIndexes, text(badCompleted, "error parsing completedIndexes: "))},
		{failedChanged, badFailed != nil, invalidError("failedIndexes", failed, text(badFailed, "error parsing failedIndexes: "))},
		{completed, s.CompletedIndexes != "" && !isIndexed(spec), invalidError("completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")},
		{failedChanged, spec.BackoffLimitPerIndex == nil && s.FailedIndexes != nil,
			invalidError("failedIndexes", failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")},
		{completed || failedChanged, overlapping != nil, invalidError("failedIndexes", failed, text(overlapping, ""))},
	}
}

func transitionRules(j, old *batchv1.Job) []rule {
	s, was := &j.Status, &old.Status
	f, o := factsOf(s), factsOf(was)
	resuming := anyCondition(was, batchv1.JobSuspended, corev1.ConditionTrue) &&
		anyCondition(s, batchv1.JobSuspended, corev1.ConditionFalse)
	scalable := isIndexed(&j.Spec) && equality.Semantic.DeepEqual(j.Spec.Completions, j.Spec.Parallelism)
	return []rule{
		{true, o.failed && !f.failed, conditionsError("cannot disable the terminal Failed=True condition")},
		{true, o.complete && !f.complete, conditionsError("cannot disable the terminal Complete=True condition")},
		{true, o.failing && !f.failing, conditionsError("cannot disable the terminal FailureTarget=True condition")},
		{true, s.Failed < was.Failed, invalidError("failed", s.Failed, "cannot decrease the failed counter")},
		{!scalable, s.Succeeded < was.Succeeded, invalidError("succeeded", s.Succeeded, "cannot decrease the succeeded counter")},
		{true, s.CompletionTime != nil && was.CompletionTime != nil && !ptr.Equal(s.CompletionTime, was.CompletionTime),
			invalidError("completionTime", s.CompletionTime, "field is immutable")},
		{!ptr.Equal(was.StartTime, s.StartTime) && !resuming, was.StartTime != nil && !ptr.Deref(j.Spec.Suspend, false),
			invalidError("startTime", s.StartTime, "field is immutable for unsuspended job once set")},
		{true, o.succeeding && !f.succeeding, conditionsError("cannot disable the SuccessCriteriaMet=True condition")},
		{true, o.complete && !o.succeeding && f.succeeding, conditionsError("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")},
	}
}
