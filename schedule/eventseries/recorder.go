// Package eventseries is the event recorder of the scheduler. It writes Events about Pods in the form of the
// events.k8s.io API: with a time, an action and a reporting controller, and with a series instead of a count for
// repeated Events.
package eventseries

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
)

// Recorder records Events. It never blocks its caller; if too many Events are queued, new ones are dropped. While the
// scheduler is busy, Events are delayed for a moment, because binding Pods is more urgent.
type Recorder struct {
	writer   client.Writer
	log      *slog.Logger
	instance string
	// warnings and normals are separate queues, because warnings are delayed for a shorter time.
	warnings, normals backlog

	mu     sync.Mutex // guards what follows
	series map[seriesKey]*series
	idle   chan struct{} // closed while the scheduler is idle
	busy   bool
}

// backlog is a queue of Events with the time they are delayed at most.
type backlog struct {
	queue    chan *corev1.Event
	maxDelay time.Duration
}

type seriesKey struct {
	uid                        types.UID
	reason, action, controller string
}

// series is a repeated Event. A series ends when it was not repeated for seriesTimeout, and when the message changes.
type series struct {
	message string
	stored  *corev1.Event // as last written; nil until the first Event is stored
	count   int32
	last    time.Time
	wrote   time.Time
}

const (
	writersPerBacklog = 4
	queueSize         = 10000
	// warningDelay and normalDelay are how long Events are delayed while the scheduler is busy. Warnings are more
	// urgent: that a Pod is scheduled can be seen in the Pod itself.
	warningDelay, normalDelay = time.Second, 5 * time.Second
	// A series ends after seriesTimeout without repetition, and is written at most once in seriesRefresh.
	seriesTimeout = 6 * time.Minute
	seriesRefresh = 30 * time.Minute
	maxSeries     = 16384
)

// New returns a recorder that writes with w. Run has to be called.
func New(w client.Writer, log *slog.Logger) *Recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	newBacklog := func(maxDelay time.Duration) backlog { return backlog{make(chan *corev1.Event, queueSize), maxDelay} }
	return &Recorder{writer: w, log: log, instance: host, warnings: newBacklog(warningDelay), normals: newBacklog(normalDelay),
		series: map[seriesKey]*series{}, idle: make(chan struct{}), busy: true}
}

// SetBusy sets whether the scheduler is busy, that is, has Pods to schedule.
func (e *Recorder) SetBusy(yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy == yes {
		return
	}
	if e.busy = yes; yes {
		e.idle = make(chan struct{})
	} else {
		close(e.idle)
	}
}

// waitUntilIdle waits until the scheduler is idle or the Event was delayed for long enough. It does not wait if many
// Events are queued.
func (e *Recorder) waitUntilIdle(ctx context.Context, l backlog, ev *corev1.Event) {
	left := l.maxDelay - time.Since(ev.EventTime.Time)
	if left <= 0 || len(l.queue) > queueSize/2 {
		return
	}
	e.mu.Lock()
	calm := e.idle
	e.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-calm:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Note is what an Event says about a Pod.
type Note struct {
	Controller string // the name of the scheduler
	Type       string // Normal or Warning
	Reason     string
	Action     string
	Message    string
	Related    *corev1.Pod // another Pod that the Event is about, or nil
}

// Record writes an Event about a Pod, some time later.
func (e *Recorder) Record(pod *corev1.Pod, n Note) { e.enqueue(e.event(pod, n)) }

func (e *Recorder) event(pod *corev1.Pod, n Note) *corev1.Event {
	now := time.Now()
	namespace := pod.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	ev := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano())},
		InvolvedObject: *reference(pod),
		EventTime:      metav1.NewMicroTime(now), Type: n.Type, Reason: n.Reason, Action: n.Action, Message: n.Message,
		ReportingController: n.Controller, ReportingInstance: n.Controller + "-" + e.instance,
	}
	if n.Related != nil {
		ev.Related = reference(n.Related)
	}
	return ev
}

func reference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}

func (e *Recorder) enqueue(ev *corev1.Event) {
	l := e.warnings
	if ev.Type == corev1.EventTypeNormal {
		l = e.normals
	}
	select {
	case l.queue <- ev:
		if len(l.queue) > queueSize/2 {
			e.SetBusy(false) // until the next Pod is taken; writers that wait continue
		}
	default:
		e.log.Debug("too many Events are queued; one is dropped", "reason", ev.Reason)
	}
}

// Run writes Events until ctx ends.
func (e *Recorder) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range []backlog{e.warnings, e.normals} {
		for range writersPerBacklog {
			wg.Go(func() { e.writeBacklog(ctx, l) })
		}
	}
	wg.Wait()
}

// writeBacklog writes the Events of a queue, one after the other.
func (e *Recorder) writeBacklog(ctx context.Context, l backlog) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-l.queue:
			e.waitUntilIdle(ctx, l, ev)
			if err := e.write(ctx, ev); err != nil && ctx.Err() == nil {
				e.log.DebugContext(ctx, "an Event could not be written", "reason", ev.Reason, "err", err)
			}
		}
	}
}

// write creates an Event, or adds it to its series. Normal Events are always created: a Pod is scheduled only once.
func (e *Recorder) write(ctx context.Context, ev *corev1.Event) error {
	if ev.Type == corev1.EventTypeNormal {
		_, err := e.create(ctx, ev)
		return err
	}
	s, again := e.countRepetition(ev)
	if again == nil && s == nil {
		return nil
	}
	if again != nil {
		o, err := e.writer.Update(ctx, gr.Events, again, "")
		if err == nil {
			e.storeSeries(s, o.(*corev1.Event))
			return nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	stored, err := e.create(ctx, ev)
	if err != nil {
		return err
	}
	e.storeSeries(s, stored)
	return nil
}

// create creates an Event. If the name is taken, because another Event about the Pod has the same time, it tries other
// names.
func (e *Recorder) create(ctx context.Context, ev *corev1.Event) (*corev1.Event, error) {
	for try := int64(1); ; try++ {
		o, err := e.writer.Create(ctx, gr.Events, ev.DeepCopy())
		if err == nil {
			return o.(*corev1.Event), nil
		}
		if !apierrors.IsAlreadyExists(err) || try > 5 {
			return nil, err
		}
		ev.Name = fmt.Sprintf("%s.%x", ev.InvolvedObject.Name, ev.EventTime.UnixNano()+try)
	}
}

func (e *Recorder) storeSeries(s *series, stored *corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.stored, s.wrote = stored, time.Now()
}

// countRepetition adds an Event to its series. It returns the series, and for a repetition the updated Event to write;
// it returns nil for both if nothing is to be written now.
func (e *Recorder) countRepetition(ev *corev1.Event) (*series, *corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	key := seriesKey{ev.InvolvedObject.UID, ev.Reason, ev.Action, ev.ReportingController}
	s := e.series[key]
	if s == nil || s.message != ev.Message || now.Sub(s.last) > seriesTimeout {
		if len(e.series) >= maxSeries {
			clear(e.series)
		}
		s = &series{message: ev.Message, count: 1, last: now}
		e.series[key] = s
		return s, nil
	}
	s.count++
	s.last = now
	if s.stored == nil || s.count > 2 && now.Sub(s.wrote) < seriesRefresh {
		return nil, nil
	}
	next := s.stored.DeepCopy()
	next.Series = &corev1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(now)}
	s.wrote = now
	return s, next
}
