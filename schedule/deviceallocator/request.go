package deviceallocator

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// alternative is one alternative of a request.
type alternative struct {
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

// fit is a device that satisfies a request, with the capacity that would be consumed.
type fit struct {
	*candidate
	draws Amounts
}

// isAdmin reports whether the request has admin access, so that the devices may be allocated to others.
func (w *alternative) isAdmin() bool { return w.admin != nil && *w.admin }

// ref returns the request name of the allocation results.
func (w *alternative) ref() string {
	if w.parent != "" {
		return w.parent + "/" + w.name
	}
	return w.name
}

// alternativesOf returns the alternatives of a request, the preferred first.
func (a *Allocator) alternativesOf(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequest) ([]*alternative, error) {
	var out []*alternative
	if e := r.Exactly; e != nil {
		w := &alternative{
			name: r.Name, selectors: e.Selectors, all: e.AllocationMode == resourcev1.DeviceAllocationModeAll, count: int(e.Count),
			admin: e.AdminAccess, tolerations: e.Tolerations,
		}
		if e.Capacity != nil {
			w.capacity = e.Capacity.Requests
		}
		if len(e.DerivedAttributes) > 0 {
			return nil, fmt.Errorf("claim %s/%s, request %s: cannot handle request with derived attributes, the feature is disabled", claim.Namespace, claim.Name, r.Name)
		}
		return []*alternative{w}, a.classOf(claim, w, e.DeviceClassName)
	}
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		w := &alternative{
			name: s.Name, parent: r.Name, selectors: s.Selectors, all: s.AllocationMode == resourcev1.DeviceAllocationModeAll,
			count:       int(s.Count),
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

func (a *Allocator) classOf(claim *resourcev1.ResourceClaim, w *alternative, name string) error {
	if w.class = a.in.Class(name); w.class == nil {
		return fmt.Errorf("claim %s/%s, request %s: could not retrieve device class %s", claim.Namespace, claim.Name, w.ref(), name)
	}
	if !w.all && w.count == 0 {
		w.count = 1
	}
	return nil
}

// match finds the devices that satisfy an alternative. With allocation mode All, every matching device must be
// available.
func (a *Allocator) match(claim *resourcev1.ResourceClaim, w *alternative, devices []*candidate) error {
	if w.all {
		for _, c := range devices {
			p := c.pool
			switch {
			case p.incomplete:
				return fmt.Errorf("claim %s/%s, request %s: asks for all devices, but resource pool %s/%s is currently being updated%w", claim.Namespace, claim.Name, w.ref(), p.driver, p.name, silentUnavailable{})
			case p.invalid:
				return fmt.Errorf("claim %s/%s, request %s: asks for all devices, but resource pool %s/%s is currently invalid%w", claim.Namespace, claim.Name, w.ref(), p.driver, p.name, silentUnavailable{})
			}
		}
	}
	for _, c := range devices {
		if c.pool.incomplete || c.pool.invalid || !toleratesAll(a.taintsOf(c), w.tolerations) {
			continue
		}
		ok, err := a.isSelected(claim, w, c)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		draws, ok, err := consumption(c.Device, w.capacity)
		if err != nil {
			return fmt.Errorf("claim %s/%s, request %s: checking capacity for device %s: %w", claim.Namespace, claim.Name, w.ref(), c.ID,
				err)
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

// silentUnavailable makes an error an ErrUnavailable without adding text.
type silentUnavailable struct{}

// Error returns no text.
func (silentUnavailable) Error() string { return "" }

// Is reports that the error is ErrUnavailable.
func (silentUnavailable) Is(target error) bool { return target == ErrUnavailable }

// isSelected reports whether the selectors of the class and of the request match a device.
func (a *Allocator) isSelected(claim *resourcev1.ResourceClaim, w *alternative, c *candidate) (bool, error) {
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

// constraint is a constraint on the devices of a claim.
type constraint struct {
	resourcev1.DeviceConstraint
	values []resourcev1.DeviceAttribute // of the devices chosen so far
}

// add adds a device to the constraint, and returns false if the constraint does not allow it.
func (r *constraint) add(w *alternative, c *candidate) bool {
	if !r.appliesTo(w) {
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
	if r.MatchAttribute != nil && len(r.values) > 0 && !same(r.values[0]) || r.DistinctAttribute != nil &&
		slices.ContainsFunc(r.values, same) {
		return false
	}
	r.values = append(r.values, value)
	return true
}

func (r *constraint) remove(w *alternative) {
	if r.appliesTo(w) {
		r.values = r.values[:len(r.values)-1]
	}
}

func (r *constraint) appliesTo(w *alternative) bool {
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
