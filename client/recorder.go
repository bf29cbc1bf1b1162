package client

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Recorder tells people what happened to an object, as Events. It never makes its caller wait: Events are written by
// Run, one after the other, and when too many wait, some are dropped; see waiting.go. What happens again and again becomes
// one Event with a count; see similar.go.
type Recorder struct {
	writer    Writer
	component string
	host      string // the node it speaks for; empty for none
	log       *slog.Logger
	queue     *waiting
}

// NewRecorder makes a recorder whose Events come from a component.
func NewRecorder(w Writer, component string, log *slog.Logger) *Recorder {
	return &Recorder{writer: w, component: component, log: log, queue: newWaiting(maxWaiting)}
}

// On says from which node the Events come.
func (r *Recorder) On(node string) *Recorder {
	r.host = node
	return r
}

// Event says that something happened to an object. eventType is Normal or Warning.
func (r *Recorder) Event(about kind.Object, eventType, reason, format string, args ...any) {
	r.EventAt(about, "", eventType, reason, format, args...)
}

// EventAt says that something happened to a part of an object, such as spec.containers{web}.
func (r *Recorder) EventAt(about kind.Object, field, eventType, reason, format string, args ...any) {
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
			UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(), FieldPath: field,
		},
		Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...),
		Source: corev1.EventSource{Component: r.component, Host: r.host}, ReportingController: r.component, ReportingInstance: r.host,
		Count: 1, FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
	}
	r.queue.put(ev)
}

// Dropped counts the Events that were never written because too many waited.
func (r *Recorder) Dropped() uint64 { return r.queue.lost() }

// Run writes Events until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	seen := newSimilar()
	for ctx.Err() == nil {
		ev := r.queue.next(ctx)
		if ev == nil {
			return
		}
		if err := r.write(ctx, seen, ev); err != nil && ctx.Err() == nil {
			r.log.DebugContext(ctx, "an Event could not be written", "component", r.component, "err", err)
		}
	}
}

// write stores an Event, or counts up the one it repeats.
func (r *Recorder) write(ctx context.Context, seen *similar, ev *corev1.Event) error {
	series := seen.add(ev)
	if series == nil {
		return nil // too many about this object
	}
	if series.stored != nil {
		next := series.stored.DeepCopy()
		next.Count, next.LastTimestamp, next.Message = series.count, ev.LastTimestamp, ev.Message
		o, err := r.writer.Update(ctx, gr.Events, next, "")
		if err == nil {
			series.stored = o.(*corev1.Event)
			return nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		series.count, ev.Count = 1, 1 // it has expired, so this begins a new one
	}
	made, err := r.writer.Create(ctx, gr.Events, ev)
	for try := 1; apierrors.IsAlreadyExists(err) && try <= 5; try++ { // two in the same moment
		next := ev.DeepCopy()
		next.Name = fmt.Sprintf("%s.%x", ev.InvolvedObject.Name, ev.FirstTimestamp.UnixNano()+int64(try))
		made, err = r.writer.Create(ctx, gr.Events, next)
	}
	if err == nil {
		series.stored = made.(*corev1.Event)
	}
	return err
}
