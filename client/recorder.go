package client

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Recorder tells people what happened to an object, as Events. It never makes its caller wait: Events are written by
// Run, one after the other, and when too many wait, the newest are dropped.
type Recorder struct {
	writer    Writer
	component string
	log       *slog.Logger
	queue     chan *corev1.Event
}

// NewRecorder makes a recorder whose Events come from a component.
func NewRecorder(w Writer, component string, log *slog.Logger) *Recorder {
	return &Recorder{writer: w, component: component, log: log, queue: make(chan *corev1.Event, 1024)}
}

// Event says that something happened to an object. kind is Normal or Warning.
func (r *Recorder) Event(about kind.Object, eventType, reason, format string, args ...any) {
	now := time.Now()
	gvk := about.GetObjectKind().GroupVersionKind()
	namespace := about.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	ev := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", about.GetName(), now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: about.GetNamespace(), Name: about.GetName(),
			UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(),
		},
		Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...),
		Source: corev1.EventSource{Component: r.component}, ReportingController: r.component,
		Count: 1, FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
	}
	select {
	case r.queue <- ev:
	default:
	}
}

// Run writes Events until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-r.queue:
			if _, err := r.writer.Create(ctx, gr.Events, ev); err != nil && ctx.Err() == nil {
				r.log.DebugContext(ctx, "an Event could not be written", "component", r.component, "err", err)
			}
		}
	}
}
