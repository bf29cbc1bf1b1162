package client

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Recorder is an event recorder: it reports what happened to objects as Events. It never blocks its caller: Run writes
// the Events one after the other, and if too many are queued, some are dropped; see eventqueue.go. A repeated Event
// becomes one Event with a count; see aggregate.go.
type Recorder struct {
	writer    Writer
	component string
	host      string // the node that the Events come from; empty for none
	log       *slog.Logger
	queue     *eventQueue
}

// NewRecorder returns a recorder whose Events name component as their source.
func NewRecorder(w Writer, component string, log *slog.Logger) *Recorder {
	return &Recorder{writer: w, component: component, log: log, queue: newEventQueue(maxQueuedBytes)}
}

// ForNode sets the node that the Events come from, and returns the recorder.
func (r *Recorder) ForNode(node string) *Recorder {
	r.host = node
	return r
}

// Event queues an Event about an object. eventType is Normal or Warning.
func (r *Recorder) Event(obj kind.Object, eventType, reason, format string, args ...any) {
	r.EventAt(ObjectField{Object: obj}, eventType, reason, format, args...)
}

// ObjectField is a part of an object, such as spec.containers{web}. An empty Field stands for the whole object.
type ObjectField struct {
	Object kind.Object
	Field  string
}

// EventAt queues an Event about a part of an object. eventType is Normal or Warning.
func (r *Recorder) EventAt(at ObjectField, eventType, reason, format string, args ...any) {
	now, obj := time.Now(), at.Object
	gvk := obj.GetObjectKind().GroupVersionKind()
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	ev := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", obj.GetName(), now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
			UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), FieldPath: at.Field,
		},
		Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...),
		Source: corev1.EventSource{Component: r.component, Host: r.host}, ReportingController: r.component, ReportingInstance: r.host,
		Count: 1, FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
	}
	r.queue.add(ev)
}

// Dropped returns the number of Events that were dropped because too many were queued.
func (r *Recorder) Dropped() uint64 { return r.queue.droppedCount() }

// Run writes Events until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	seen := newAggregator()
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

// write creates an Event, or increases the count of the stored Event that it repeats.
func (r *Recorder) write(ctx context.Context, seen *aggregator, ev *corev1.Event) error {
	series := seen.add(ev)
	if series == nil {
		return nil // there are too many Events about this object
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
		series.count, ev.Count = 1, 1 // the stored Event has expired, so a new series begins
	}
	made, err := r.writer.Create(ctx, gr.Events, ev)
	for try := 1; apierrors.IsAlreadyExists(err) && try <= 5; try++ { // two Events of the same nanosecond have the same name
		next := ev.DeepCopy()
		next.Name = fmt.Sprintf("%s.%x", ev.InvolvedObject.Name, ev.FirstTimestamp.UnixNano()+int64(try))
		made, err = r.writer.Create(ctx, gr.Events, next)
	}
	if err == nil {
		series.stored = made.(*corev1.Event)
	}
	return err
}
