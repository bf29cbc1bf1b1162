package batch

import (
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/check"
)

// maxCronJobName bounds the name of a cron job: the name of a job has eleven more characters, a time.
const maxCronJobName = utilvalidation.DNS1035LabelMaxLength - 11

func prepareCronJob(c, old *batchv1.CronJob) {
	prepareJobSpec(&c.Spec.JobTemplate.Spec, oldJobSpec(old))
}

func oldJobSpec(c *batchv1.CronJob) *batchv1.JobSpec {
	if c == nil {
		return nil
	}
	return &c.Spec.JobTemplate.Spec
}

func warnCronJob(c, old *batchv1.CronJob) []string {
	path := field.NewPath("spec", "jobTemplate", "spec")
	if old == nil {
		return append(podspec.NameWarnings(c.Name), warnJobSpec(path, &c.Spec.JobTemplate.Spec, nil)...)
	}
	var warnings []string
	if c.Generation != old.Generation {
		warnings = warnJobSpec(path, &c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
	}
	if strings.Contains(c.Spec.Schedule, "TZ") {
		warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return warnings
}

func validateCronJob(c, old *batchv1.CronJob) field.ErrorList {
	s, path := &c.Spec, field.NewPath("spec")
	var errs, last field.ErrorList
	if s.Schedule == "" {
		last = append(last, field.Required(path.Child("schedule"), ""))
	} else {
		errs = append(errs, validateSchedule(s, old != nil && strings.Contains(old.Spec.Schedule, "TZ"), path.Child("schedule"))...)
	}
	errs = append(errs, check.NonNegativePtr(s.StartingDeadlineSeconds, path.Child("startingDeadlineSeconds"))...)
	if s.TimeZone != nil && (old == nil || !equality.Semantic.DeepEqual(old.Spec.TimeZone, s.TimeZone)) {
		errs = append(errs, validateTimeZone(*s.TimeZone, path.Child("timeZone"))...)
	}
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	if s.ConcurrencyPolicy == "" {
		errs = append(errs, field.Required(path.Child("concurrencyPolicy"), ""))
	} else if !slices.Contains(policies, s.ConcurrencyPolicy) {
		errs = append(errs, field.NotSupported(path.Child("concurrencyPolicy"), s.ConcurrencyPolicy, policies))
	}
	template := path.Child("jobTemplate", "spec")
	errs = append(errs, validateJobSpec(&s.JobTemplate.Spec, oldJobSpec(old), template)...)
	if selector := s.JobTemplate.Spec.Selector; selector != nil {
		errs = append(errs, field.Invalid(template.Child("selector"), selector, "`selector` will be auto-generated"))
	}
	if ptr.Deref(s.JobTemplate.Spec.ManualSelector, false) {
		errs = append(errs, field.NotSupported(template.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	errs = append(errs, check.NonNegativePtr(s.SuccessfulJobsHistoryLimit, path.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, check.NonNegativePtr(s.FailedJobsHistoryLimit, path.Child("failedJobsHistoryLimit"))...)
	if old == nil && len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	return append(errs, last...)
}

func validateSchedule(s *batchv1.CronJobSpec, zoneAllowed bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if err := parseSchedule(s.Schedule); err != nil {
		errs = append(errs, field.Invalid(path, s.Schedule, err.Error()))
	}
	switch zoned := strings.Contains(s.Schedule, "TZ"); {
	case zoned && !zoneAllowed:
		errs = append(errs, field.Invalid(path, s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case zoned && s.TimeZone != nil:
		errs = append(errs, field.Invalid(path, s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// parseSchedule recovers from panics of the parser on some malformed schedules.
func parseSchedule(schedule string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

func validateTimeZone(zone string, path *field.Path) field.ErrorList {
	if zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if !isZonePart(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+zone)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(path, zone, err.Error()))
	}
	return errs
}

// isZonePart reports whether a part of the name of a time zone is valid by the rules of the time zone database. It is
// checked before a file of that name is opened.
func isZonePart(part string) bool {
	if part == "" || len(part) > 14 || part == "." || part == ".." || part[0] == '-' {
		return false
	}
	return strings.IndexFunc(part, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && !(r >= '0' && r <= '9') && !strings.ContainsRune(".-_+", r)
	}) < 0
}
