package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// The pauses after failures.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// steady is how long a watch must last to count as one that worked.
	steady = time.Second
)

// fetch reads the objects of the view as they are now, and the revision of that.
func (v *view) fetch(ctx context.Context) ([]kind.Object, int64, error) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	namespace, q := v.selection()
	m := mediaOf(v.def.New())
	resp, err := v.client.send(ctx, &call{method: http.MethodGet, def: v.def, namespace: namespace, query: q, media: m}) //nolint:bodyclose // read closes it
	if err != nil {
		return nil, 0, err
	}
	data, err := read(resp, v.client.MaxList)
	if err != nil {
		return nil, 0, err
	}
	return v.client.list(data, m, v.def)
}

func (v *view) load(ctx context.Context) error {
	items, rev, err := v.fetch(ctx)
	if err != nil {
		return err
	}
	v.replace(items, rev)
	return nil
}

// follow keeps the view up until ctx ends: by a watch, by another one from where that ended, and when the server does not
// remember what was there, by reading everything again.
func (v *view) follow(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := v.watch(ctx)
		if gone(err) {
			err = v.load(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) {
			v.setRefused(err)
		}
		if err == nil || time.Since(began) > steady {
			pause = firstPause
		}
		if err != nil {
			v.client.Log.DebugContext(ctx, "a watch has ended", "resource", v.def.Plural, "err", err)
		}
		if err == nil && time.Since(began) > steady {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // G404: it spreads load
		}
		pause = min(2*pause, lastPause)
	}
}

// watch follows the changes from where the view is, until the server ends that.
func (v *view) watch(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	namespace, q := v.selection()
	v.mu.Lock()
	rev := v.rev
	v.mu.Unlock()
	q.Set("watch", "true")
	q.Set("resourceVersion", strconv.FormatInt(rev, 10))
	q.Set("allowWatchBookmarks", "true")
	m := mediaOf(v.def.New())
	resp, err := v.client.send(ctx, &call{method: http.MethodGet, def: v.def, namespace: namespace, query: q, media: m, stream: true})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	v.setRefused(nil)
	from := v.client.events(resp.Body, v.def, m)
	for {
		ev, err := from.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		v.apply(ev)
	}
}

// setRefused tells whoever wants to know that the server forbids the watch, or allows it again, when that has changed.
func (v *view) setRefused(err error) {
	if v.client.Refused == nil || v.scope != (client.Scope{}) || v.refused == (err != nil) {
		return
	}
	v.refused = err != nil
	v.client.Refused(v.def.Resource(), err)
}

// gone says that a watch cannot go on from where it was: the server has forgotten that, or was never there.
func gone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
