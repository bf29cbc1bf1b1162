package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func prepareJob(j, old *batchv1.Job)                              {}
func validateJob(j, old *batchv1.Job) field.ErrorList             { return nil }
func validateJobStatusUpdate(j, old *batchv1.Job) field.ErrorList { return nil }
func warnJob(j, old *batchv1.Job) []string                        { return nil }
func prepareCronJob(j, old *batchv1.CronJob)                      {}
func validateCronJob(j, old *batchv1.CronJob) field.ErrorList     { return nil }
func warnCronJob(j, old *batchv1.CronJob) []string                { return nil }
