package schedule

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
	"proa.dev/kinds/gr"
)

// events tells people about pods, in the form in which schedulers do it: with the time, an action and who reports, and with
// a series instead of a count when the same happens again. Nobody waits for it; what is too much is dropped. While pods are
// being placed Events wait, for a moment at most: a pod wants its node more than people want to read about it.
type events struct {
	writer   client.Writer
	log      *slog.Logger
	instance string
	// complaints and news wait apart, so that the former need not wait as long as the latter.
	complaints, news lane

	mu     sync.Mutex // guards what follows
	series map[seriesKey]*series
	calm   chan struct{} // closed while there is nothing to place
	hurry  bool
}

// lane is where Events wait to be written.
type lane struct {
	queue    chan *corev1.Event
	patience time.Duration
}

type seriesKey struct {
	uid                        types.UID
	reason, action, controller string
}

// series is an Event that may happen again. It is over when it has not for a while, and when there is something else to say: a message that is no
// longer true is not counted on.
type series struct {
	message string
	stored  *corev1.Event // as last written; nil while the first is on its way
	count   int32
	last    time.Time
	wrote   time.Time
}

const (
	eventWriters = 4
	eventQueue   = 10000
	// How long an Event waits for a moment without pods to place: that a pod has its node can be read in the pod itself, what is
	// wrong only here.
	complaintPatience, newsPatience = time.Second, 5 * time.Second
	// A series ends after this long without a repetition, and is written no more often than every refresh.
	seriesEnds    = 6 * time.Minute
	seriesRefresh = 30 * time.Minute
	mostSeries    = 16384
)

func newEvents(w client.Writer, log *slog.Logger) *events {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	made := func(patience time.Duration) lane { return lane{make(chan *corev1.Event, eventQueue), patience} }
	return &events{writer: w, log: log, instance: host, complaints: made(complaintPatience), news: made(newsPatience), series: map[seriesKey]*series{}, calm: make(chan struct{}), hurry: true}
}

// busy says whether there are pods to place.
func (e *events) busy(yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hurry == yes {
		return
	}
	if e.hurry = yes; yes {
		e.calm = make(chan struct{})
	} else {
		close(e.calm)
	}
}

// wait waits for a calm moment, but not for long, and not if many Events do.
func (e *events) wait(ctx context.Context, l lane, ev *corev1.Event) {
	left := l.patience - time.Since(ev.EventTime.Time)
	if left <= 0 || len(l.queue) > eventQueue/2 {
		return
	}
	e.mu.Lock()
	calm := e.calm
	e.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-calm:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// say reports that something happened to a pod.
func (e *events) say(pod *corev1.Pod, controller, eventType, reason, action, note string) {
	e.send(e.event(pod, controller, eventType, reason, action, note))
}

func (e *events) event(pod *corev1.Pod, controller, eventType, reason, action, note string) *corev1.Event {
	now := time.Now()
	namespace := pod.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano())},
		InvolvedObject: *reference(pod),
		EventTime:      metav1.NewMicroTime(now), Type: eventType, Reason: reason, Action: action, Message: note,
		ReportingController: controller, ReportingInstance: controller + "-" + e.instance,
	}
}

func reference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}

func (e *events) send(ev *corev1.Event) {
	l := e.complaints
	if ev.Type == corev1.EventTypeNormal {
		l = e.news
	}
	select {
	case l.queue <- ev:
		if len(l.queue) > eventQueue/2 {
			e.busy(false) // until the next pod; those who wait go on
		}
	default:
		e.log.Debug("too many Events wait; one is dropped", "reason", ev.Reason)
	}
}

// run writes Events until ctx ends.
func (e *events) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range []lane{e.complaints, e.news} {
		for range eventWriters {
			wg.Go(func() { e.drive(ctx, l) })
		}
	}
	wg.Wait()
}

// drive writes the Events of a lane, one after the other.
func (e *events) drive(ctx context.Context, l lane) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-l.queue:
			e.wait(ctx, l, ev)
			if err := e.write(ctx, ev); err != nil && ctx.Err() == nil {
				e.log.DebugContext(ctx, "an Event could not be written", "reason", ev.Reason, "err", err)
			}
		}
	}
}

// write stores an Event, or counts it in the series it belongs to. A pod is scheduled once, so that is no series.
func (e *events) write(ctx context.Context, ev *corev1.Event) error {
	if ev.Type == corev1.EventTypeNormal {
		_, err := e.create(ctx, ev)
		return err
	}
	s, again := e.repeated(ev)
	if again == nil && s == nil {
		return nil
	}
	if again != nil {
		o, err := e.writer.Update(ctx, gr.Events, again, "")
		if err == nil {
			e.keep(s, o.(*corev1.Event))
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
	e.keep(s, stored)
	return nil
}

// create stores a new Event. Two of one pod in the same moment have the same name, so the second gets another.
func (e *events) create(ctx context.Context, ev *corev1.Event) (*corev1.Event, error) {
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

func (e *events) keep(s *series, stored *corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.stored, s.wrote = stored, time.Now()
}

// repeated counts an Event. It returns its series, with what to update of it if the Event is a repetition, or neither if
// nothing is to be written now.
func (e *events) repeated(ev *corev1.Event) (*series, *corev1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	key := seriesKey{ev.InvolvedObject.UID, ev.Reason, ev.Action, ev.ReportingController}
	s := e.series[key]
	if s == nil || s.message != ev.Message || now.Sub(s.last) > seriesEnds {
		if len(e.series) >= mostSeries {
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
