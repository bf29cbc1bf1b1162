package why

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
)

// job explains a Job.
func (r *reader) job(ctx context.Context, t Target) (*Answer, error) {
	j, err := lookup.Load[batchv1.Job](ctx, r.Reader, gr.Jobs, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	return r.explainJob(ctx, j), nil
}

func (r *reader) explainJob(ctx context.Context, j *batchv1.Job) *Answer {
	a := (&Answer{Object: Ref{Kind: "Job", Namespace: j.Namespace, Name: j.Name}, State: Stuck}).At(hop.Control)
	if j.DeletionTimestamp != nil {
		return metadata.Ending(a, &j.ObjectMeta, r.Now)
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		field := "status.conditions[" + string(c.Type) + "]"
		switch c.Type {
		case batchv1.JobComplete:
			a.State, a.Cause = Working, "The Job is complete."
			return a.Because(a.Object, field, "True", c.LastTransitionTime.Time)
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			a.Cause = "The Job has failed (" + c.Reason + "): " + answer.Sentence(c.Message) + "."
			a.Because(a.Object, field, c.Reason+": "+c.Message, c.LastTransitionTime.Time)
			pods, _ := r.podsOf(ctx, j.Namespace, j.UID)
			a.Through = r.worstPod(ctx, pods)
			return a.Do("kubectl logs job/%s%s", j.Name, answer.InNamespace(j.Namespace))
		case batchv1.JobSuspended:
			a.State, a.Cause = Waiting, "The Job is suspended."
			return a.Because(a.Object, field, "True", c.LastTransitionTime.Time).Do("set spec.suspend to false")
		}
	}
	events := r.Events(ctx, j.Namespace, j.UID)
	if e := lookup.Latest(events, "FailedCreate", "SuccessfulCreate"); e != nil && e.Reason == "FailedCreate" && j.Status.Active == 0 {
		return r.refused(ctx, a, e.Message, "event "+e.Reason, e.Time)
	}
	pods, seen := r.podsOf(ctx, j.Namespace, j.UID)
	var failed []*corev1.Pod
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		if p.Status.Phase != corev1.PodFailed {
			return false
		}
		failed = append(failed, p)
		return true
	})
	if worst := r.worstPod(ctx, pods); worst != nil && worst.State == Stuck {
		a.Through = worst
		a.Cause = fmt.Sprintf("The Job has %s running, %d succeeded and %d failed; Pod %s is stuck: %s", answer.Plural(int(j.Status.Active), "Pod"), j.Status.Succeeded, j.Status.Failed,
			worst.Object.Name, answer.Lower(worst.Cause))
		a.Hop, a.HopName = worst.Hop, worst.HopName
		return a
	}
	a.State = Waiting
	a.Cause = fmt.Sprintf("The Job runs: %s running, %d succeeded, %d failed.", answer.Plural(int(j.Status.Active), "Pod"),
		j.Status.Succeeded, j.Status.Failed)
	if !seen {
		a.Cause += " Its Pods cannot be read."
	}
	if last := r.worstPod(ctx, failed); last != nil { // the Job tries again until backoffLimit
		a.Through = last
		a.Cause += " It tries again after failures; Pod " + last.Object.Name + ": " + answer.Lower(last.Cause)
	}
	if j.Spec.ManagedBy != nil && *j.Spec.ManagedBy != "kubernetes.io/job-controller" {
		a.Cause = "The Job is managed by " + *j.Spec.ManagedBy + ", not by the Job controller of this cluster."
		a.Because(a.Object, "spec.managedBy", *j.Spec.ManagedBy, time.Time{})
	}
	return a.Because(a.Object, "status.active", fmt.Sprint(j.Status.Active), time.Time{})
}

// cronJob explains a CronJob.
func (r *reader) cronJob(ctx context.Context, t Target) (*Answer, error) {
	j, err := lookup.Load[batchv1.CronJob](ctx, r.Reader, gr.CronJobs, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Control)
	if j.DeletionTimestamp != nil {
		return metadata.Ending(a, &j.ObjectMeta, r.Now), nil
	}
	a.Because(a.Object, "spec.schedule", j.Spec.Schedule, time.Time{})
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		a.State, a.Cause = Waiting, "The CronJob is suspended."
		return a.Because(a.Object, "spec.suspend", "true", time.Time{}).Do("set spec.suspend to false"), nil
	}
	events := r.Events(ctx, j.Namespace, j.UID)
	if e := lookup.Latest(events, "FailedCreate", "InvalidSchedule", "UnparseableSchedule", "UnknownTimeZone", "TooManyMissedTimes",
		"MissSchedule"); e != nil &&
		(j.Status.LastScheduleTime == nil || e.Time.After(j.Status.LastScheduleTime.Time)) {
		a.Cause = "The CronJob cannot start a Job: " + answer.Sentence(e.Message) + "."
		return a.Because(a.Object, "event "+e.Reason, e.Message, e.Time), nil
	}
	jobs, _ := lookup.Owned[batchv1.Job](ctx, r.Reader, gr.Jobs, j.Namespace, j.UID)
	var newest *batchv1.Job
	for _, own := range jobs {
		if newest == nil || newest.CreationTimestamp.Before(&own.CreationTimestamp) {
			newest = own
		}
	}
	if newest != nil {
		if last := r.explainJob(ctx, newest); last.State == Stuck {
			a.Through = last
			a.Cause = "The last Job of the CronJob, " + newest.Name + ", is stuck or has failed: " + answer.Lower(last.Cause)
			return a, nil
		}
	}
	a.State, a.Hop, a.HopName = Working, 0, ""
	a.Cause = "The CronJob starts a Job by the schedule " + j.Spec.Schedule + "; it has not started one yet."
	if at := j.Status.LastScheduleTime; at != nil {
		a.Cause = "The CronJob starts a Job by the schedule " + j.Spec.Schedule + ", the last time " + r.ago(at.Time) + " ago."
	}
	return a, nil
}

// conditionsOfV1 is the annotation that has the conditions of an autoscaler where the cluster serves only autoscaling/v1.
const conditionsOfV1 = "autoscaling.alpha.kubernetes.io/conditions"

// measurePatience is how long nothing need have been measured for a new autoscaler: metrics come in periods, and so does the controller.
const measurePatience = time.Minute

// autoscaler explains a HorizontalPodAutoscaler.
func (r *reader) autoscaler(ctx context.Context, t Target) (*Answer, error) {
	h, err := lookup.Load[autoscalingv2.HorizontalPodAutoscaler](ctx, r.Reader, gr.HorizontalPodAutoscalers, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Control)
	if h.DeletionTimestamp != nil {
		return metadata.Ending(a, &h.ObjectMeta, r.Now), nil
	}
	if text := h.Annotations[conditionsOfV1]; len(h.Status.Conditions) == 0 && text != "" {
		var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
		if err := json.Unmarshal([]byte(text), &conditions); err != nil {
			r.CannotSee("the conditions of the autoscaler "+h.Name, err)
		}
		h.Status.Conditions = conditions
	}
	advice := map[autoscalingv2.HorizontalPodAutoscalerConditionType]string{
		autoscalingv2.AbleToScale:   "check that spec.scaleTargetRef names something that exists and can be scaled",
		autoscalingv2.ScalingActive: "check that all containers of the Pods request what is measured, and kubectl top pods",
	}
	for _, name := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale, autoscalingv2.ScalingActive} {
		for _, c := range h.Status.Conditions {
			if c.Type != name || c.Status != corev1.ConditionFalse {
				continue
			}
			a.Cause = "The autoscaler does not scale (" + c.Reason + "): " + answer.Sentence(c.Message) + "."
			isNew := c.Type == autoscalingv2.ScalingActive && r.Now.Sub(h.CreationTimestamp.Time) < measurePatience
			if isNew || c.Reason == "ScalingDisabled" {
				a.State = Waiting
			}
			return a.Because(a.Object, "status.conditions["+string(c.Type)+"]", c.Reason+": "+c.Message, c.LastTransitionTime.Time).Do("%s",
				advice[name]), nil
		}
	}
	if len(h.Status.Conditions) == 0 {
		a.State, a.Cause = Unknown, "The status of the autoscaler has no conditions: nothing says whether it has measured anything."
		if r.Now.Sub(h.CreationTimestamp.Time) < measurePatience {
			a.State, a.Cause = Waiting, "The autoscaler has not measured anything yet."
		}
		return a, nil
	}
	a.State, a.Hop, a.HopName = Working, 0, ""
	a.Cause = fmt.Sprintf("The autoscaler works: it wants %s and there are %d.", answer.Plural(int(h.Status.DesiredReplicas), "replica"),
		h.Status.CurrentReplicas)
	for _, c := range h.Status.Conditions {
		if c.Type == autoscalingv2.ScalingLimited && c.Status == corev1.ConditionTrue {
			a.State, a.Cause = Waiting, "The autoscaler is at its limit: "+answer.Sentence(c.Message)+"."
			a.Because(a.Object, "status.conditions[ScalingLimited]", c.Reason+": "+c.Message, c.LastTransitionTime.Time)
		}
	}
	return a, nil
}
