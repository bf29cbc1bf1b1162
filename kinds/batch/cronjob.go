package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// CronJobs create jobs on a schedule.
func CronJobs() *kind.Def {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return kind.Define(kind.Resource[batchv1.CronJob]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, Plural: "cronjobs",
			Short: []string{"cj"}, Categories: []string{"all"},
			Generation: true,
		},
		Spec:     func(c *batchv1.CronJob) any { return &c.Spec },
		Status:   func(c *batchv1.CronJob) any { return &c.Status },
		Default:  defaultCronJob,
		Prepare:  prepareCronJob,
		Validate: validateCronJob,
		Warn:     warnCronJob,
		Columns: []kind.Column[batchv1.CronJob]{
			kind.NameColumn[batchv1.CronJob](),
			{Name: "Schedule", Description: spec["schedule"], Value: func(c *batchv1.CronJob) any { return c.Spec.Schedule }},
			{Name: "Timezone", Description: spec["timeZone"],
				Value: func(c *batchv1.CronJob) any { return ptr.Deref(c.Spec.TimeZone, "<none>") }},
			{Name: "Suspend", Type: "boolean", Description: spec["suspend"], Value: func(c *batchv1.CronJob) any {
				switch s := c.Spec.Suspend; {
				case s == nil:
					return "<unset>"
				case *s:
					return "True"
				}
				return "False"
			}},
			{Name: "Active", Type: "integer", Description: status["active"],
				Value: func(c *batchv1.CronJob) any { return int64(len(c.Status.Active)) }},
			{Name: "Last Schedule", Description: status["lastScheduleTime"], Value: func(c *batchv1.CronJob) any {
				if c.Status.LastScheduleTime == nil {
					return "<none>"
				}
				return kind.Age(*c.Status.LastScheduleTime)
			}},
			kind.AgeColumn[batchv1.CronJob](),
			kind.ContainersColumn(cronJobContainers),
			kind.ImagesColumn(cronJobContainers),
			{Name: "Selector", Wide: true, Description: batchv1.JobSpec{}.SwaggerDoc()["selector"],
				Value: func(c *batchv1.CronJob) any { return metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector) }},
		},
		Subs: []kind.Sub[batchv1.CronJob]{{Name: "status"}},
	})
}

func cronJobContainers(c *batchv1.CronJob) []corev1.Container {
	return c.Spec.JobTemplate.Spec.Template.Spec.Containers
}

func defaultCronJob(c *batchv1.CronJob) {
	defaultJobTemplate(&c.Spec.JobTemplate.Spec)
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	defaulting.IfNil(&c.Spec.Suspend, false)
	defaulting.IfNil(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	defaulting.IfNil(&c.Spec.FailedJobsHistoryLimit, 1)
}
