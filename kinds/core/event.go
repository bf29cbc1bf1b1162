package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// eventTTL is how long an event is kept, in seconds.
const eventTTL = 3600

// The bounds of the texts of an event.
const (
	maxEventWord    = 128
	maxEventMessage = 1024
)

// Events record what happened to an object. This is the stored version; events.k8s.io serves the same events in a
// newer form with stricter rules.
func Events() *kind.Def {
	return kind.Define(kind.Resource[corev1.Event]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Event"}, Plural: "events", Short: []string{"ev"},
			TTL: eventTTL, CreateOnUpdate: true,
		},
		Name: check.PathSegment, LooseMeta: true,
		Validate: func(e, _ *corev1.Event) field.ErrorList { return ValidateEvent(e, "reportingComponent") },
		Columns:  EventColumns(func(e *corev1.Event) *corev1.Event { return e }),
		Fields:   eventFields(),
		Delete:   kind.Deletion[corev1.Event]{HasNoDependents: true},
	})
}

func eventFields() map[string]func(*corev1.Event) string {
	return map[string]func(*corev1.Event) string{
		"involvedObject.kind":            func(e *corev1.Event) string { return e.InvolvedObject.Kind },
		"involvedObject.namespace":       func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
		"involvedObject.name":            func(e *corev1.Event) string { return e.InvolvedObject.Name },
		"involvedObject.uid":             func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
		"involvedObject.apiVersion":      func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
		"involvedObject.resourceVersion": func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
		"involvedObject.fieldPath":       func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
		"reason":                         func(e *corev1.Event) string { return e.Reason },
		"reportingComponent":             func(e *corev1.Event) string { return e.ReportingController },
		"source":                         func(e *corev1.Event) string { return cmp.Or(e.Source.Component, e.ReportingController) },
		"type":                           func(e *corev1.Event) string { return e.Type },
	}
}

// ValidateEvent checks the rules of all versions of events. reporter is the name of the field of the reporting
// controller in the version of the request.
func ValidateEvent(e *corev1.Event, reporter string) field.ErrorList {
	var errs field.ErrorList
	misplaced := field.Invalid(field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, "does not match event.namespace")
	if e.EventTime.Time.Equal(time.Time{}) {
		inDefault := e.InvolvedObject.Namespace == "" && (e.Namespace == metav1.NamespaceNone || e.Namespace == metav1.NamespaceDefault)
		if e.Namespace != e.InvolvedObject.Namespace && !inDefault {
			errs = append(errs, misplaced)
		}
		return errs
	}
	if e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		errs = append(errs, misplaced)
	}
	at := field.NewPath(reporter)
	errs = append(errs, check.Required(e.ReportingController, at)...)
	errs = append(errs, check.QualifiedName(e.ReportingController, at)...)
	for _, f := range []struct {
		name, text string
		most       int
		needed     bool
	}{
		{"reportingInstance", e.ReportingInstance, maxEventWord, true},
		{"action", e.Action, maxEventWord, true},
		{"reason", e.Reason, maxEventWord, true},
		{"message", e.Message, maxEventMessage, false},
	} {
		if f.needed && f.text == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), ""))
		}
		if len(f.text) > f.most {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", fmt.Sprintf("can have at most %v characters", f.most)))
		}
	}
	return errs
}

// EventColumns returns the columns of an event in any of its versions.
func EventColumns[T any](hub func(*T) *corev1.Event) []kind.Column[T] {
	doc := corev1.Event{}.SwaggerDoc()
	cell := func(name, description string, wide bool, value func(*corev1.Event) any) kind.Column[T] {
		return kind.Column[T]{Name: name, Wide: wide, Description: description, Value: func(o *T) any { return value(hub(o)) }}
	}
	name := cell("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"], true, func(e *corev1.Event) any { return e.Name })
	name.Format = "name"
	return []kind.Column[T]{
		cell("Last Seen", doc["lastTimestamp"], false, func(e *corev1.Event) any { return lastSeen(e) }),
		cell("Type", doc["type"], false, func(e *corev1.Event) any { return e.Type }),
		cell("Reason", doc["reason"], false, func(e *corev1.Event) any { return e.Reason }),
		cell("Object", doc["involvedObject"], false, func(e *corev1.Event) any {
			if e.InvolvedObject.Name == "" {
				return strings.ToLower(e.InvolvedObject.Kind)
			}
			return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		}),
		cell("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], true,
			func(e *corev1.Event) any { return e.InvolvedObject.FieldPath }),
		cell("Source", doc["source"], true, func(e *corev1.Event) any {
			source := cmp.Or(e.Source.Component, e.ReportingController)
			if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
				source += ", " + host
			}
			return source
		}),
		cell("Message", doc["message"], false, func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }),
		cell("First Seen", doc["firstTimestamp"], true, func(e *corev1.Event) any { return firstSeen(e) }),
		cell("Count", doc["count"], true, func(e *corev1.Event) any { return eventCount(e) }),
		name,
	}
}

func firstSeen(e *corev1.Event) string {
	if e.FirstTimestamp.IsZero() {
		return microAge(e.EventTime)
	}
	return kind.Age(e.FirstTimestamp)
}

func lastSeen(e *corev1.Event) string {
	switch {
	case e.Series != nil:
		return microAge(e.Series.LastObservedTime)
	case e.LastTimestamp.IsZero():
		return firstSeen(e)
	}
	return kind.Age(e.LastTimestamp)
}

func eventCount(e *corev1.Event) int64 {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.Count == 0:
		return 1
	}
	return int64(e.Count)
}

func microAge(t metav1.MicroTime) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
