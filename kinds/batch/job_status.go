package batch

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// facts is what the rules about a status look at.
type facts struct{ complete, failed, failing, succeeding, finished bool }

func factsOf(s *batchv1.JobStatus) facts {
	is := func(t batchv1.JobConditionType) bool { return anyCondition(s, t, corev1.ConditionTrue) }
	f := facts{complete: is(batchv1.JobComplete), failed: is(batchv1.JobFailed), failing: is(batchv1.JobFailureTarget), succeeding: is(batchv1.JobSuccessCriteriaMet)}
	f.finished = f.complete || f.failed
	return f
}

func anyCondition(s *batchv1.JobStatus, kind batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == status })
}

// rule is one thing that must not be. It is looked at only when what it is about has changed, so that a
// status that already breaks it can still be mended elsewhere.
type rule struct {
	looked, broken bool
	err            func() *field.Error
}

func report(rules []rule) field.ErrorList {
	var errs field.ErrorList
	for _, r := range rules {
		if r.looked && r.broken {
			errs = append(errs, r.err())
		}
	}
	return errs
}

func validateJobStatusUpdate(j, old *batchv1.Job) field.ErrorList {
	errs := validateCounts(&j.Status)
	errs = append(errs, report(statusRules(j, old))...)
	return append(errs, report(transitionRules(j, old))...)
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

// omitted makes an error about the conditions as a whole.
func omitted(text string) func() *field.Error {
	return func() *field.Error {
		return field.Invalid(field.NewPath("status", "conditions"), field.OmitValueType{}, text)
	}
}

func invalid(name string, value any, text string) func() *field.Error {
	return func() *field.Error { return field.Invalid(field.NewPath("status", name), value, text) }
}

func needed(name, text string) func() *field.Error {
	return func() *field.Error { return field.Required(field.NewPath("status", name), text) }
}

func sameTime(a, b *metav1.Time) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func statusRules(j, old *batchv1.Job) []rule {
	s, was := &j.Status, &old.Status
	f, o := factsOf(s), factsOf(was)
	start, completion := !sameTime(was.StartTime, s.StartTime), !sameTime(was.CompletionTime, s.CompletionTime)
	finishedMoved, completeMoved, failedMoved := f.finished != o.finished, f.complete != o.complete, f.failed != o.failed
	active := was.Active != s.Active
	completed, failedIndexes := was.CompletedIndexes != s.CompletedIndexes, !equality.Semantic.DeepEqual(was.FailedIndexes, s.FailedIndexes)
	nothingToDo := or(j.Spec.Suspend, false) && j.Spec.Completions != nil && *j.Spec.Completions == 0
	uncounted := s.UncountedTerminatedPods
	rules := []rule{
		{completeMoved || failedMoved, f.complete && f.failed, omitted("cannot set Complete=True and Failed=true conditions")},
		{completeMoved || f.failing != o.failing, f.complete && f.failing, omitted("cannot set Complete=True and FailureTarget=true conditions")},
		{completeMoved || completion, s.CompletionTime != nil && !f.complete, invalid("completionTime", s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")},
		{completeMoved || completion, s.CompletionTime == nil && f.complete, needed("completionTime", "completionTime is required for Complete jobs")},
		{start || completion, s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime), invalid("completionTime", s.CompletionTime, "must be equal to or after `startTime`")},
		{failedMoved || failedIndexes, f.failed && !f.failing, omitted("cannot set Failed=True condition without the FailureTarget=true condition")},
		{completeMoved || f.succeeding != o.succeeding, f.complete && !f.succeeding, omitted("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")},
		{finishedMoved || active, s.Active > 0 && f.finished, invalid("active", s.Active, "active>0 is invalid for finished job")},
		{(finishedMoved || start) && !nothingToDo, s.StartTime == nil && f.finished, needed("startTime", "startTime is required for finished job")},
		{finishedMoved || !equality.Semantic.DeepEqual(was.UncountedTerminatedPods, uncounted), f.finished && uncounted != nil && len(uncounted.Failed)+len(uncounted.Succeeded) > 0,
			invalid("uncountedTerminatedPods", check.Internal(uncounted), "must be empty for finished job")},
	}
	rules = append(rules, indexRules(&j.Spec, s, completed, failedIndexes)...)
	return append(rules, []rule{
		{finishedMoved || !equality.Semantic.DeepEqual(was.Terminating, s.Terminating), or(s.Terminating, 0) > 0 && f.finished, invalid("terminating", s.Terminating, "terminating>0 is invalid for finished job")},
		{!equality.Semantic.DeepEqual(was.Ready, s.Ready) || active, s.Ready != nil && *s.Ready > s.Active, invalid("ready", or(s.Ready, 0), "cannot set more ready pods than active")},
		{true, f.succeeding && f.failed, omitted("cannot set SuccessCriteriaMet=True and Failed=true conditions")},
		{true, f.succeeding && f.failing, omitted("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")},
		{true, j.Spec.SuccessPolicy != nil && !f.succeeding && f.complete, omitted("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")},
	}...)
}

func indexRules(spec *batchv1.JobSpec, s *batchv1.JobStatus, completed, failedMoved bool) []rule {
	completions, failed := or(spec.Completions, 0), or(s.FailedIndexes, "")
	var badCompleted, badFailed, overlapping error
	if spec.Completions != nil {
		_, badCompleted = parseIndexes(s.CompletedIndexes, completions)
		if spec.BackoffLimitPerIndex != nil && s.FailedIndexes != nil {
			_, badFailed = parseIndexes(failed, completions)
		}
		if s.CompletedIndexes != "" && failed != "" {
			overlapping = overlap(s.CompletedIndexes, failed, completions)
		}
	}
	text := func(err error, prefix string) string {
		if err == nil {
			return ""
		}
		return prefix + err.Error()
	}
	return []rule{
		{completed, badCompleted != nil, invalid("completedIndexes", s.CompletedIndexes, text(badCompleted, "error parsing completedIndexes: "))},
		{failedMoved, badFailed != nil, invalid("failedIndexes", failed, text(badFailed, "error parsing failedIndexes: "))},
		{completed, s.CompletedIndexes != "" && !isIndexed(spec), invalid("completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")},
		{failedMoved, spec.BackoffLimitPerIndex == nil && s.FailedIndexes != nil, invalid("failedIndexes", failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")},
		{completed || failedMoved, overlapping != nil, invalid("failedIndexes", failed, text(overlapping, ""))},
	}
}

func transitionRules(j, old *batchv1.Job) []rule {
	s, was := &j.Status, &old.Status
	f, o := factsOf(s), factsOf(was)
	resuming := anyCondition(was, batchv1.JobSuspended, corev1.ConditionTrue) && anyCondition(s, batchv1.JobSuspended, corev1.ConditionFalse)
	scalable := isIndexed(&j.Spec) && equality.Semantic.DeepEqual(j.Spec.Completions, j.Spec.Parallelism)
	return []rule{
		{true, o.failed && !f.failed, omitted("cannot disable the terminal Failed=True condition")},
		{true, o.complete && !f.complete, omitted("cannot disable the terminal Complete=True condition")},
		{true, o.failing && !f.failing, omitted("cannot disable the terminal FailureTarget=True condition")},
		{true, s.Failed < was.Failed, invalid("failed", s.Failed, "cannot decrease the failed counter")},
		{!scalable, s.Succeeded < was.Succeeded, invalid("succeeded", s.Succeeded, "cannot decrease the succeeded counter")},
		{true, s.CompletionTime != nil && was.CompletionTime != nil && !sameTime(s.CompletionTime, was.CompletionTime), invalid("completionTime", s.CompletionTime, "field is immutable")},
		{!sameTime(was.StartTime, s.StartTime) && !resuming, was.StartTime != nil && !or(j.Spec.Suspend, false), invalid("startTime", s.StartTime, "field is immutable for unsuspended job once set")},
		{true, o.succeeding && !f.succeeding, omitted("cannot disable the SuccessCriteriaMet=True condition")},
		{true, o.complete && !o.succeeding && f.succeeding, omitted("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")},
	}
}
