package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
)

const (
	// minBackoff and maxBackoff bound the pause before a failed watch is retried.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// steadyAfter is how long a watch must last to count as successful, which resets the back-off.
	steadyAfter = time.Second
)

// fetch lists the current objects of the view, and returns them with the revision of the list.
func (v *view) fetch(ctx context.Context) ([]kind.Object, int64, error) {
	ctx, stop := context.WithTimeout(ctx, requestTimeout)
	defer stop()
	namespace, q := v.selection()
	m := mediaOf(v.def.New())
	data, err := v.client.exchangeBytes(ctx, &call{method: http.MethodGet, def: v.def, namespace: namespace, query: q, media: m},
		v.client.MaxList)
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

// follow keeps the view up to date until ctx ends. When a watch ends it opens another one at the same revision; if the
// server no longer has that revision, it lists all objects again.
func (v *view) follow(ctx context.Context) {
	backoff := wait.Backoff{First: minBackoff, Max: maxBackoff, Jitter: 0.5}
	for ctx.Err() == nil {
		began := time.Now()
		err := v.watch(ctx)
		if isExpired(err) {
			err = v.load(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) {
			v.setRefused(err)
		}
		if err == nil || time.Since(began) > steadyAfter {
			backoff.Reset()
		}
		if err != nil {
			v.client.Log.DebugContext(ctx, "watch ended", "resource", v.def.Plural, "err", err)
		}
		if err == nil && time.Since(began) > steadyAfter {
			continue
		}
		_ = backoff.Sleep(ctx)
	}
}

// watch applies the changes after the revision of the view, until the server ends the watch.
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
	for room := v.client.MaxList; ; {
		ev, err := from.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if room -= ev.size; room < 0 { // all these events together are as bounded as a list is
			return apierrors.NewResourceExpired("there were too many events: all objects are listed again")
		}
		v.apply(ev)
	}
}

// setRefused calls Config.Refused when the server has begun to forbid the watch, or allows it again.
func (v *view) setRefused(err error) {
	if v.client.Refused == nil || v.scope != (client.Scope{}) || v.refused == (err != nil) {
		return
	}
	v.refused = err != nil
	v.client.Refused(v.def.Resource(), err)
}

// isExpired reports that a watch cannot resume at its revision, because the server has compacted it or has never had
// it.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
