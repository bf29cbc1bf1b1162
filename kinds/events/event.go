package events

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// Events are the events of the core group in their newer form. hub is the storage version.
func Events(hub *kind.Def) *kind.Def {
	return kind.Version(hub, kind.Resource[eventsv1.Event]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, Plural: "events",
			Short:          []string{"ev"},
			CreateOnUpdate: true,
		},
		Validate: validateEvent,
		Columns:  core.EventColumns(toCore),
		Fields:   eventFields(),
		Delete:   kind.Deletion[eventsv1.Event]{HasNoDependents: true},
	}, toCore, fromCore)
}

func eventFields() map[string]func(*eventsv1.Event) string {
	return map[string]func(*eventsv1.Event) string{
		"reason":                    func(e *eventsv1.Event) string { return e.Reason },
		"regarding.kind":            func(e *eventsv1.Event) string { return e.Regarding.Kind },
		"regarding.namespace":       func(e *eventsv1.Event) string { return e.Regarding.Namespace },
		"regarding.name":            func(e *eventsv1.Event) string { return e.Regarding.Name },
		"regarding.uid":             func(e *eventsv1.Event) string { return string(e.Regarding.UID) },
		"regarding.apiVersion":      func(e *eventsv1.Event) string { return e.Regarding.APIVersion },
		"regarding.resourceVersion": func(e *eventsv1.Event) string { return e.Regarding.ResourceVersion },
		"regarding.fieldPath":       func(e *eventsv1.Event) string { return e.Regarding.FieldPath },
		"reportingController":       func(e *eventsv1.Event) string { return e.ReportingController },
		"type":                      func(e *eventsv1.Event) string { return e.Type },
	}
}

// toCore converts an event to the storage version. The result shares parts with the argument.
func toCore(e *eventsv1.Event) *corev1.Event {
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Series: (*corev1.EventSeries)(e.Series),
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related,
		Message: e.Note, Type: e.Type, Source: e.DeprecatedSource, Count: e.DeprecatedCount,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp,
	}
}

func fromCore(e *corev1.Event) *eventsv1.Event {
	return &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Series: (*eventsv1.EventSeries)(e.Series),
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related,
		Note: e.Message, Type: e.Type, DeprecatedSource: e.Source, DeprecatedCount: e.Count,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp,
	}
}

// validateEvent checks an event by the strict rules of this version. Errors name the fields of the storage version,
// as upstream's do.
func validateEvent(obj, was *eventsv1.Event) field.ErrorList {
	e := toCore(obj)
	errs := core.ValidateEvent(e, "reportingController")
	if was == nil {
		return append(errs, validateNew(e)...)
	}
	old := toCore(was)
	if !reflect.DeepEqual(e.Series, old.Series) {
		errs = append(errs, validateSeries(e.Series)...)
	}
	immutable := func(name string, value, was any) {
		errs = append(errs, check.Immutable(value, was, field.NewPath(name))...)
	}
	immutableStruct := func(name string, value, was any) {
		errs = append(errs, check.ImmutableStruct(value, was, field.NewPath(name))...)
	}
	immutableStruct("involvedObject", e.InvolvedObject, old.InvolvedObject)
	immutable("reason", e.Reason, old.Reason)
	immutable("message", e.Message, old.Message)
	immutableStruct("source", e.Source, old.Source)
	immutable("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	immutable("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	immutable("count", e.Count, old.Count)
	immutable("type", e.Type, old.Type)
	// Clients that keep fewer digits than a nanosecond must still be able to write back what they read.
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		immutable("eventTime", e.EventTime, old.EventTime)
	}
	immutable("action", e.Action, old.Action)
	immutableStruct("related", e.Related, old.Related)
	immutable("reportingController", e.ReportingController, old.ReportingController)
	immutable("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return errs
}

func validateNew(e *corev1.Event) field.ErrorList {
	errs := validateSeries(e.Series)
	if e.EventTime.Time.Equal(time.Time{}) {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.Time.Equal(time.Time{})},
		{"lastTimestamp", !e.LastTimestamp.Time.Equal(time.Time{})},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if f.set {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
		}
	}
	return errs
}

func validateSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if s.LastObservedTime.Time.Equal(time.Time{}) {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}
