package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

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
	var uncounted error
	for _, on := range unwatched {
		if views[on] != nil {
			continue
		}
		undefined, err := isUndefined(c, on)
		uncounted = errors.Join(uncounted, err)
		if undefined {
			// The objects went with the definition of the resource, perhaps before they could be counted.
			used = usage.Add(used, usage.Counter{Resource: on}.Used(&corev1.ResourceQuotaSpec{Hard: q.Status.Used}, nil))
		}
	}
	l.recordCount(k, time.Now(), time.Since(start))
	if next := decide(q, used); next != nil {
		if _, err := c.Update(ctx, gr.ResourceQuotas, next, "status"); err != nil {
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return 0, err
		}
	}
	if uncounted != nil {
		return 0, uncounted
	}
	if len(unwatched) > 0 {
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

// open returns the views of the resources that a quota bounds. Changes of the unwatched ones wake no key; those that are not served
// have no view.
func open(ctx context.Context, c *control.Cluster, q *corev1.ResourceQuota, d *usage.Devices) (views map[schema.GroupResource]client.View,
	unwatched []schema.GroupResource, err error) {
	views = map[schema.GroupResource]client.View{}
	for _, on := range usage.Resources(q.Spec.Hard, d) {
		v := c.View(on)
		if v == nil {
			unwatched = append(unwatched, on)
			if v, err = c.Open(ctx, on); apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
				continue // it is not served, yet
			} else if err != nil {
				return nil, nil, err
			}
			c.RefreshDynamicViews()
		}
		views[on] = v
	}
	// The used amount is added in the transaction that creates an object. So the views must be at least as new as the quota; if
	// they are newer, the write of the quota conflicts.
	rev, err := strconv.ParseInt(q.ResourceVersion, 10, 64)
	if err != nil {
		return nil, nil, err
	}
	reached := slices.Collect(maps.Values(views))
	if slices.ContainsFunc(unwatched, func(on schema.GroupResource) bool { return views[on] == nil }) {
		reached = append(reached, c.View(gr.CustomResourceDefinitions), c.View(gr.APIServices)) // for isUndefined
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(reached))
	for _, v := range reached {
		wg.Go(func() { errs <- v.Reach(ctx, rev) })
	}
	wg.Wait()
	for range reached {
		err = errors.Join(err, <-errs)
	}
	return views, unwatched, err
}

// isUndefined reports whether a resource that is not served has no objects either: there is no definition of it, served or not, and no
// aggregated API server has its group. It returns an error if the definition is stored and cannot be decoded: its objects may exist, and
// cannot be counted.
func isUndefined(c *control.Cluster, on schema.GroupResource) (bool, error) {
	definitions := c.View(gr.CustomResourceDefinitions)
	before := definitions.Unreadable("")
	if _, found := client.Outlines(definitions).Get("", on.String()); found {
		return false, nil
	}
	// It may have become readable or unreadable between the two reads.
	for _, key := range append(before, definitions.Unreadable("")...) {
		if strings.HasSuffix(key, "/"+on.String()) {
			return false, fmt.Errorf("the definition of %s cannot be decoded: %s; its objects are not counted", on, key)
		}
	}
	for s := range control.List[*apiregistrationv1.APIService](c, gr.APIServices, "") {
		if s.Spec.Group == on.Group && s.Spec.Service != nil {
			return false, nil
		}
	}
	return true, nil
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
