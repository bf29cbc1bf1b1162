package device

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// want is one way to satisfy a request.
type want struct {
	name, parent string // parent is set for one of several ways
	class        *resourcev1.DeviceClass
	selectors    []resourcev1.DeviceSelector
	all          bool
	count        int
	admin        *bool
	tolerations  []resourcev1.DeviceToleration
	capacity     Amounts
	fits         []fit
}

// fit is a device that would do, with what would be drawn of it.
type fit struct {
	*candidate
	draws Amounts
}

// isAdmin says that the devices may belong to others.
func (w *want) isAdmin() bool { return w.admin != nil && *w.admin }

// ref is the name under which devices are allocated.
func (w *want) ref() string {
	if w.parent != "" {
		return w.parent + "/" + w.name
	}
	return w.name
}

// wants are the ways to satisfy a request, the best first.
func (a *Allocator) wants(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequest) ([]*want, error) {
	var out []*want
	if e := r.Exactly; e != nil {
		w := &want{
			name: r.Name, selectors: e.Selectors, all: e.AllocationMode == resourcev1.DeviceAllocationModeAll, count: int(e.Count),
			admin: e.AdminAccess, tolerations: e.Tolerations,
		}
		if e.Capacity != nil {
			w.capacity = e.Capacity.Requests
		}
		if len(e.DerivedAttributes) > 0 {
			return nil, fmt.Errorf("claim %s/%s, request %s: cannot handle request with derived attributes, the feature is disabled", claim.Namespace, claim.Name, r.Name)
		}
		return []*want{w}, a.classOf(claim, w, e.DeviceClassName)
	}
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		w := &want{
			name: s.Name, parent: r.Name, selectors: s.Selectors, all: s.AllocationMode == resourcev1.DeviceAllocationModeAll, count: int(s.Count),
			tolerations: s.Tolerations,
		}
		if s.Capacity != nil {
			w.capacity = s.Capacity.Requests
		}
		if err := a.classOf(claim, w, s.DeviceClassName); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func (a *Allocator) classOf(claim *resourcev1.ResourceClaim, w *want, name string) error {
	if w.class = a.in.Class(name); w.class == nil {
		return fmt.Errorf("claim %s/%s, request %s: could not retrieve device class %s", claim.Namespace, claim.Name, w.ref(), name)
	}
	if !w.all && w.count == 0 {
		w.count = 1
	}
	return nil
}

// match fills in the devices that would do for a request. One that asks for all must get all there are.
func (a *Allocator) match(claim *resourcev1.ResourceClaim, w *want, devices []*candidate) error {
	if w.all {
		for _, c := range devices {
			p := c.pool
			switch {
			case p.incomplete:
				return fmt.Errorf("claim %s/%s, request %s: asks for all devices, but resource pool %s/%s is currently being updated%w", claim.Namespace, claim.Name, w.ref(), p.driver, p.name, silent{})
			case p.invalid:
				return fmt.Errorf("claim %s/%s, request %s: asks for all devices, but resource pool %s/%s is currently invalid%w", claim.Namespace, claim.Name, w.ref(), p.driver, p.name, silent{})
			}
		}
	}
	for _, c := range devices {
		if c.pool.incomplete || c.pool.invalid || !tolerated(a.taints(c), w.tolerations) {
			continue
		}
		ok, err := a.selected(claim, w, c)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		draws, ok, err := draw(c.Device, w.capacity)
		if err != nil {
			return fmt.Errorf("claim %s/%s, request %s: checking capacity for device %s: %w", claim.Namespace, claim.Name, w.ref(), c.ID, err)
		}
		if ok {
			w.fits = append(w.fits, fit{c, draws})
		}
	}
	if w.all {
		w.count = len(w.fits)
	}
	return nil
}

// silent marks an error as one of ErrUnavailable without another word.
type silent struct{}

// Error says nothing.
func (silent) Error() string { return "" }

// Is makes it one of ErrUnavailable.
func (silent) Is(target error) bool { return target == ErrUnavailable }

// selected says that the selectors of the class and of the request are about a device.
func (a *Allocator) selected(claim *resourcev1.ResourceClaim, w *want, c *candidate) (bool, error) {
	for _, list := range []struct {
		of        string
		selectors []resourcev1.DeviceSelector
	}{{"class " + w.class.Name, w.class.Spec.Selectors}, {"claim " + claim.Namespace + "/" + claim.Name, w.selectors}} {
		for i, s := range list.selectors {
			if s.CEL == nil {
				return false, fmt.Errorf("claim %s/%s, request %s, selector #%d: CEL expression empty (unsupported selector type?)", claim.Namespace, claim.Name, w.ref(), i)
			}
			if a.in.Select == nil {
				return false, ErrNoSelector
			}
			ok, err := a.in.Select(s.CEL.Expression, c.Driver, c.Device)
			if err != nil {
				return false, fmt.Errorf("%s: selector #%d on device %s: %w", list.of, i, c.ID, err)
			}
			if !ok {
				return false, nil
			}
		}
	}
	return true, nil
}

// rule is a constraint between the devices of a claim.
type rule struct {
	resourcev1.DeviceConstraint
	values []resourcev1.DeviceAttribute // of the devices chosen so far
}

// add says whether a device may be chosen, and counts it if so.
func (r *rule) add(w *want, c *candidate) bool {
	if !r.about(w) {
		return true
	}
	full := r.MatchAttribute
	if full == nil {
		full = r.DistinctAttribute
	}
	if full == nil {
		return false
	}
	value, has := c.Attributes[resourcev1.QualifiedName(*full)]
	if !has {
		if domain, id, ok := strings.Cut(string(*full), "/"); ok && domain == c.Driver {
			value, has = c.Attributes[resourcev1.QualifiedName(id)]
		}
	}
	if !has {
		return false
	}
	same := func(o resourcev1.DeviceAttribute) bool { return equal(o, value) }
	if r.MatchAttribute != nil && len(r.values) > 0 && !same(r.values[0]) || r.DistinctAttribute != nil && slices.ContainsFunc(r.values, same) {
		return false
	}
	r.values = append(r.values, value)
	return true
}

func (r *rule) remove(w *want) {
	if r.about(w) {
		r.values = r.values[:len(r.values)-1]
	}
}

func (r *rule) about(w *want) bool {
	return len(r.Requests) == 0 || slices.Contains(r.Requests, w.ref()) || w.parent != "" && slices.Contains(r.Requests, w.parent)
}

func equal(a, b resourcev1.DeviceAttribute) bool {
	switch {
	case a.StringValue != nil && b.StringValue != nil:
		return *a.StringValue == *b.StringValue
	case a.IntValue != nil && b.IntValue != nil:
		return *a.IntValue == *b.IntValue
	case a.BoolValue != nil && b.BoolValue != nil:
		return *a.BoolValue == *b.BoolValue
	case a.VersionValue != nil && b.VersionValue != nil:
		return *a.VersionValue == *b.VersionValue
	}
	return false
}
