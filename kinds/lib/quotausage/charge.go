package quotausage

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Write is a write that may use more of a quota.
type Write struct {
	Verb, Sub string
	Object    kind.Object
	Old       kind.Object // nil on create
}

// Limited is a resource that may only be used in a namespace that has a quota for it.
type Limited struct {
	Resource schema.GroupResource
	// Contains are parts of names: the usage of a resource with such a part in its name must be bounded by a quota.
	Contains []string
	// Scopes are the scopes that a quota must have for objects in them.
	Scopes []corev1.ScopedResourceSelectorRequirement
}

// Refusal is the error for a write that exceeds a quota. Other errors mean that quotas could not be evaluated.
type Refusal struct{ Text string }

func (r Refusal) Error() string { return r.Text }

func refuse(format string, args ...any) error { return Refusal{fmt.Sprintf(format, args...)} }

// Counts reports whether a write may increase the usage of an object. Deletions do not count: the controller that
// recounts quotas lowers them.
func (c Counter) Counts(w Write) bool {
	if IsIgnored(c.Resource) || w.Object == nil {
		return false
	}
	create, update := w.Verb == "create", w.Verb == "update"
	switch c.Resource {
	case pods():
		pod, ok := w.Object.(*corev1.Pod)
		old, was := w.Old.(*corev1.Pod)
		switch {
		case !ok:
			return false
		case w.Sub == "":
			return create || update && was && isTerminating(old) != isTerminating(pod)
		}
		return w.Sub == "resize" && update
	case volumeClaims():
		if w.Sub == "status" {
			claim, ok := w.Object.(*corev1.PersistentVolumeClaim)
			old, was := w.Old.(*corev1.PersistentVolumeClaim)
			return ok && was && hasClaimChanged(claim, old)
		}
		return w.Sub == "" && (create || update)
	case services(), deviceClaims():
		return w.Sub == "" && (create || update)
	}
	return w.Sub == "" && create
}

// Charge returns copies of the quotas that a write uses more of, with the usage after it. It refuses a write that
// exceeds one of them. The write must be one that counts.
func (c Counter) Charge(quotas []*corev1.ResourceQuota, w Write, limited []Limited) ([]*corev1.ResourceQuota, error) {
	matching, err := c.matchingQuotas(quotas, w.Object)
	if err != nil {
		return nil, err
	}
	use := c.Usage(w.Object)
	var negative []corev1.ResourceName
	for name, q := range use {
		if q.Sign() < 0 {
			negative = append(negative, name)
		}
	}
	if negative != nil {
		return nil, refuse("quota usage is negative for resource(s): %s", join(negative))
	}
	more := use
	if w.Old != nil {
		more = growth(use, c.Usage(w.Old))
	}
	// In a quota in which the object did not count before, all of its usage is new.
	grows := func(q *corev1.ResourceQuota) corev1.ResourceList {
		if w.Old != nil && c.Matches(q, w.Old) {
			return more
		}
		return growth(use, nil)
	}
	if !slices.ContainsFunc(matching, func(q *corev1.ResourceQuota) bool { return len(grows(q)) > 0 }) &&
		(len(matching) > 0 || len(growth(more, nil)) == 0) {
		return nil, nil
	}
	if err := c.checkLimited(quotas, matching, w.Object, use, limited); err != nil {
		return nil, err
	}
	var charged []*corev1.ResourceQuota
	for _, q := range matching {
		next, err := spend(q, grows(q), w.Sub != "status")
		if err != nil {
			return nil, err
		}
		if next != nil {
			charged = append(charged, next)
		}
	}
	return charged, nil
}

// matchingQuotas returns the quotas that an object counts in. Their status must have the usage, and the object must have
// the requests that they bound.
func (c Counter) matchingQuotas(quotas []*corev1.ResourceQuota, obj kind.Object) (out []*corev1.ResourceQuota, err error) {
	for _, q := range quotas {
		if !c.Matches(q, obj) {
			continue
		}
		names := c.Names(q.Status.Hard)
		if pod, ok := obj.(*corev1.Pod); ok {
			if err := validateRequests(names, pod); err != nil {
				return nil, refuse("failed quota: %s: %v", q.Name, err)
			}
		}
		for _, name := range names {
			if _, known := q.Status.Used[name]; !known {
				return nil, refuse("status unknown for quota: %s, resources: %s", q.Name, join(names))
			}
		}
		out = append(out, q)
	}
	return out, nil
}

// spend adds to the usage of a quota; nil when the quota does not bound any of it. Without bounded the usage may
// exceed the quota: the status of an object reports what has already happened.
func spend(q *corev1.ResourceQuota, more corev1.ResourceList, bounded bool) (*corev1.ResourceQuota, error) {
	var names []corev1.ResourceName
	for name := range q.Status.Hard {
		names = append(names, name)
	}
	more = Mask(more, names)
	if len(more) == 0 {
		return nil, nil
	}
	used := Add(q.Status.Used, more)
	after := corev1.ResourceList{}
	for name := range more {
		after[name] = used[name]
	}
	if bad := exceeded(after, q.Status.Hard); bounded && len(bad) > 0 {
		return nil, refuse("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name,
			formatList(Mask(more, bad)), formatList(Mask(q.Status.Used, bad)), formatList(Mask(q.Status.Hard, bad)))
	}
	next := q.DeepCopy()
	next.Status.Used = used
	return next, nil
}

// checkLimited refuses the use of limited resources that no quota bounds.
func (c Counter) checkLimited(quotas, matching []*corev1.ResourceQuota, obj kind.Object, use corev1.ResourceList, limited []Limited) error {
	var bounded, open []corev1.ResourceName
	for _, q := range matching {
		bounded = append(bounded, c.Names(q.Status.Hard)...)
	}
	var have, bare []corev1.ScopedResourceSelectorRequirement
	for _, q := range quotas {
		have = append(have, matchingScopes(obj, Scopes(&q.Spec))...)
	}
	for _, l := range limited {
		for name := range growth(use, nil) {
			part := func(part string) bool { return strings.Contains(string(name), part) }
			if l.Resource == c.Resource && slices.ContainsFunc(l.Contains, part) && !slices.Contains(bounded, name) &&
				!slices.Contains(open, name) {
				open = append(open, name)
			}
		}
		for _, s := range matchingScopes(obj, l.Scopes) {
			if !slices.ContainsFunc(have, func(h corev1.ScopedResourceSelectorRequirement) bool { return h.ScopeName == s.ScopeName }) {
				bare = append(bare, s)
			}
		}
	}
	if open != nil {
		return refuse("insufficient quota to consume: %s", join(open))
	}
	if bare != nil {
		return fmt.Errorf("insufficient quota to match these scopes: %v", bare)
	}
	return nil
}

// NeedsDevices reports whether the usage of a resource depends on device classes.
func NeedsDevices(gr schema.GroupResource) bool {
	return gr == schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
}
