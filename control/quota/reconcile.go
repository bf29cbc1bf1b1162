package quota

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
	usage "proa.dev/kinds/lib/quotausage"
)

func (l *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	q, found := control.Get[*corev1.ResourceQuota](c, gr.ResourceQuotas, k.Namespace, k.Name)
	if !found {
		l.forget(k)
		return 0, nil
	}
	if wait := l.untilNextCount(k, time.Now()); wait > 0 {
		return wait, nil
	}
	d := devices(c)
	views, unwatched, err := open(ctx, c, q, d)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	used := count(q, views, d, start)
	l.recordCount(k, time.Now(), time.Since(start))
	if next := decide(q, used); next != nil {
		if _, err := c.Update(ctx, gr.ResourceQuotas, next, "status"); err != nil {
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return 0, err
		}
	}
	if unwatched {
		return unwatchedResync, nil
	}
	return resync, nil
}

// decide returns the quota with its new status, or nil if it needs no change.
func decide(q *corev1.ResourceQuota, used corev1.ResourceList) *corev1.ResourceQuota {
	var bounded []corev1.ResourceName
	for name := range q.Spec.Hard {
		bounded = append(bounded, name)
	}
	// Amounts that could not be counted are kept.
	for name, n := range q.Status.Used {
		if _, known := used[name]; !known {
			used[name] = n
		}
	}
	used = usage.Mask(used, bounded)
	if usage.Equal(q.Status.Hard, q.Spec.Hard) && usage.Equal(q.Status.Used, used) {
		return nil
	}
	next := q.DeepCopy()
	next.Status = corev1.ResourceQuotaStatus{Hard: usage.Add(q.Spec.Hard, nil), Used: used}
	return next
}

// open returns the views of the resources that a quota bounds. unwatched is true if changes of some of them wake no key.
func open(ctx context.Context, c *control.Cluster, q *corev1.ResourceQuota, d *usage.Devices) (views map[schema.GroupResource]client.View,
	unwatched bool, err error) {
	views = map[schema.GroupResource]client.View{}
	for _, on := range usage.Resources(q.Spec.Hard, d) {
		v := c.View(on)
		if v == nil {
			unwatched = true
			if v, err = c.Open(ctx, on); apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
				continue // it is not served, yet
			} else if err != nil {
				return nil, false, err
			}
			c.RefreshDynamicViews()
		}
		views[on] = v
	}
	// The used amount is added in the transaction that creates an object. So the views must be at least as new as the quota; if
	// they are newer, the write of the quota conflicts.
	rev, err := strconv.ParseInt(q.ResourceVersion, 10, 64)
	if err != nil {
		return nil, false, err
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(views))
	for _, v := range views {
		wg.Go(func() { errs <- v.Reach(ctx, rev) })
	}
	wg.Wait()
	for range views {
		err = errors.Join(err, <-errs)
	}
	return views, unwatched, err
}

// count returns what the objects in a namespace use of a quota.
func count(q *corev1.ResourceQuota, views map[schema.GroupResource]client.View, d *usage.Devices, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{}
	for on, v := range views {
		counter := usage.Counter{Resource: on, Now: now}
		if usage.NeedsDevices(on) {
			counter.Devices = d
		}
		used = usage.Add(used, counter.Used(&q.Spec, slices.Collect(v.List(q.Namespace))))
	}
	return used
}

// devices returns the objects that the count of device claims depends on; nil if device claims are not served.
func devices(c *control.Cluster) *usage.Devices {
	if !hasViews(c, gr.DeviceClasses, gr.ResourceClaims, gr.Pods) {
		return nil
	}
	return &usage.Devices{
		Classes: slices.Collect(control.List[*resourcev1.DeviceClass](c, gr.DeviceClasses, "")),
		Pod: func(namespace, name string) *corev1.Pod {
			p, _ := control.Get[*corev1.Pod](c, gr.Pods, namespace, name)
			return p
		},
		Claims: func(namespace string) []*resourcev1.ResourceClaim {
			return slices.Collect(control.List[*resourcev1.ResourceClaim](c, gr.ResourceClaims, namespace))
		},
	}
}

func hasViews(c *control.Cluster, resources ...schema.GroupResource) bool {
	return !slices.ContainsFunc(resources, func(on schema.GroupResource) bool { return c.View(on) == nil })
}
