package control

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
)

// cause is the write that put a key into the queue: of which object, and when its event reached the controller. A key that
// is retried keeps its cause; the time is then the end of the attempt that has failed.
type cause struct {
	uid    types.UID
	rev    int64
	on     schema.GroupResource
	object Key
	at     time.Time
	retry  bool
}

func causeOf(on schema.GroupResource, ev client.Event) cause {
	c := cause{uid: ev.Object.GetUID(), rev: ev.Rev, on: on, object: KeyOf(ev.Object), at: ev.At}
	if c.at.IsZero() { // a view that does not say
		c.at = time.Now()
	}
	return c
}

// worker reconciles the keys of one controller.
type worker struct {
	*Controller
	cluster  *Cluster
	queue    *queue
	log      *slog.Logger
	recorder *hop.Recorder // nil for none
	running  *sync.WaitGroup
	replaced atomic.Int32 // reconciliations whose worker was replaced
}

// run reconciles keys from the queue until ctx ends or the worker is replaced.
func (w *worker) run(ctx context.Context) {
	for replaced := false; !replaced; {
		k, why, ok := w.queue.take(ctx)
		if !ok {
			return
		}
		begin := time.Now()
		writes := &client.WriteSet{CauseUID: why.uid, CauseRev: why.rev}
		var again time.Duration
		var err error
		var exceeded bool
		again, err, exceeded, replaced = w.reconcile(client.WithWriteSet(ctx, writes), k)
		if err != nil && ctx.Err() == nil {
			level := slog.LevelWarn
			if apierrors.IsConflict(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				level = slog.LevelDebug // the views catch up, and the retry succeeds or has nothing to do
			}
			w.log.Log(ctx, level, "reconcile", "controller", w.Name, "namespace", k.Namespace, "name", k.Name, "err", err)
		}
		if ctx.Err() == nil && (err != nil || len(writes.Revisions()) > 0) {
			w.record(why, begin, err)
		}
		if reachErr := w.cluster.reachWrites(ctx, writes); reachErr != nil && err == nil {
			err = reachErr
		}
		if err != nil {
			w.queue.keepCause(k, why)
		}
		if w.queue.done(k, again, err, exceeded) {
			w.reportSetAside(ctx, k, err)
		}
	}
}

// record keeps the record of a reconcile that has written something or has failed. Most reconciles do neither: they find that
// there is nothing to do.
func (w *worker) record(why cause, begin time.Time, err error) {
	if w.recorder == nil || why.uid == "" {
		return
	}
	r := hop.Record{
		UID: why.uid, Rev: why.rev, CauseUID: why.uid, CauseRev: why.rev, Verb: hop.Reconcile, User: w.Name, Start: why.at,
		Group: why.on.Group, Resource: why.on.Resource, Namespace: why.object.Namespace, Name: why.object.Name,
	}
	r.Wait[hop.Control] = begin.Sub(why.at)
	r.Took[hop.Control] = time.Since(why.at)
	if why.retry {
		r.Steps = []hop.Step{{Hop: hop.Control, Name: "back-off", Took: r.Wait[hop.Control], Wait: r.Wait[hop.Control]}}
	} else if at, known := w.recorder.Committed(why.uid, why.rev); known && at.Before(why.at) {
		r.Start, r.Took[hop.Watch] = at, why.at.Sub(at)
	}
	if err != nil {
		r.Error = shortError(err)
	}
	w.recorder.Add(r)
}

// shortError returns the first line of an error. The error of a request begins with its reason and the resource, as in "Forbidden on pods":
// that is all of it that a reader of a trace sees who may not see every object that it may name (trace.Reader). The message of an error
// about a Secret may quote it, so only its reason is returned.
func shortError(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	reason := ""
	for _, s := range statuses(err, nil) {
		if s.Reason == "" {
			continue
		}
		if s.Details != nil && (s.Details.Kind == gr.Secrets.Resource || s.Details.Kind == "Secret") {
			return string(s.Reason)
		}
		if reason == "" {
			reason = string(s.Reason)
			if s.Details != nil && s.Details.Kind != "" {
				reason += " on " + s.Details.Kind
			}
		}
	}
	if reason == "" {
		return text
	}
	return reason + ": " + text
}

// statuses adds to out what the server has said in an error, and in those that it wraps.
func statuses(err error, out []metav1.Status) []metav1.Status {
	if status, ok := err.(apierrors.APIStatus); ok { // all errors of the tree are looked at, and not the first one
		return append(out, status.Status())
	}
	switch w := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		if inner := w.Unwrap(); inner != nil {
			return statuses(inner, out)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range w.Unwrap() {
			out = statuses(inner, out)
		}
	}
	return out
}

// attempt calls Reconcile and turns a panic into an error.
func (w *worker) attempt(ctx context.Context, k Key) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return w.Reconcile(ctx, w.cluster, k)
}
