// Package deviceallocator allocates devices for ResourceClaims. It is a pure function of ResourceSlices, DeviceClasses
// and existing allocations. It supports devices for one claim at a time, including partitionable devices with shared
// counters, and devices whose capacity several claims share.
package deviceallocator

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// ID identifies a device by its driver, its pool and its name.
type ID struct{ Driver, Pool, Device string }

// Selector evaluates the CEL expression of a selector for a device.
type Selector func(expression, driver string, device *resourcev1.Device) (bool, error)

// Input is the state of devices that an allocation is based on.
type Input struct {
	Slices []*resourcev1.ResourceSlice
	Class  func(name string) *resourcev1.DeviceClass
	// Rules add taints to devices, besides those of their drivers.
	Rules []*resourcev1.DeviceTaintRule
	// Used has the devices that are allocated.
	Used Used
	// Select evaluates selectors. If it is nil, requests with selectors cannot be allocated.
	Select Selector
	// NewID returns the ID of a new share.
	NewID func() types.UID
}

// The errors of an allocation. After ErrUnavailable, the allocation may succeed on another node or later.
var (
	ErrUnavailable = errors.New("not available")
	ErrNoSelector  = errors.New("cannot allocate: no evaluator for CEL selectors")
	errTooLong     = errors.New("timed out trying to allocate devices")
)

// The number of steps of a search grows with the combinations of devices. On each node it may take freeSteps; further
// steps come from a budget that all nodes share, so that a claim with long searches does not take long even with many
// nodes.
const (
	freeSteps = 2_000
	purse     = 1_000_000
)

// Allocator allocates devices on nodes, one node at a time.
type Allocator struct {
	in    Input
	pools []*pool
	purse int
}

// pool has the slices of the newest generation of one pool.
type pool struct {
	driver, name string
	generation   int64
	slices       []*resourcev1.ResourceSlice
	incomplete   bool // some are still to come
	invalid      bool // two devices have the same name
}

// New returns an allocator for an input.
func New(in Input) *Allocator {
	a := &Allocator{in: in, purse: purse}
	byName := map[[2]string]*pool{}
	for _, s := range in.Slices {
		key := [2]string{s.Spec.Driver, s.Spec.Pool.Name}
		p := byName[key]
		switch {
		case p == nil:
			p = &pool{driver: key[0], name: key[1], generation: s.Spec.Pool.Generation}
			byName[key] = p
			a.pools = append(a.pools, p)
		case s.Spec.Pool.Generation < p.generation:
			continue
		case s.Spec.Pool.Generation > p.generation:
			p.generation, p.slices = s.Spec.Pool.Generation, nil
		}
		p.slices = append(p.slices, s)
	}
	for _, p := range a.pools {
		names := map[string]bool{}
		for _, s := range p.slices {
			p.incomplete = p.incomplete || int64(len(p.slices)) != s.Spec.Pool.ResourceSliceCount
			for i := range s.Spec.Devices {
				p.invalid = p.invalid || names[s.Spec.Devices[i].Name]
				names[s.Spec.Devices[i].Name] = true
			}
		}
	}
	return a
}

// candidate is a device that can be used on a node.
type candidate struct {
	ID
	*resourcev1.Device
	pool     *pool
	local    *string // the node it is local to
	selector *corev1.NodeSelector
}

// reachable returns the devices that can be used on a node.
func (a *Allocator) reachable(node *corev1.Node) ([]*candidate, error) {
	var out []*candidate
	for _, p := range a.pools {
		for _, s := range p.slices {
			each := s.Spec.PerDeviceNodeSelection != nil && *s.Spec.PerDeviceNodeSelection
			if !each {
				ok, err := isReachableFrom(node, s.Spec.NodeName, s.Spec.NodeSelector, s.Spec.AllNodes)
				if err != nil {
					return nil, fmt.Errorf("node selector in resource slice %s: %w", s.Name, err)
				}
				if !ok {
					continue
				}
			}
			for i := range s.Spec.Devices {
				d := &s.Spec.Devices[i]
				c := &candidate{ID: ID{p.driver, p.name, d.Name}, Device: d, pool: p, local: s.Spec.NodeName, selector: s.Spec.NodeSelector}
				if each {
					c.local, c.selector = d.NodeName, d.NodeSelector
					ok, err := isReachableFrom(node, d.NodeName, d.NodeSelector, d.AllNodes)
					if err != nil {
						return nil, fmt.Errorf("node selector in device %s: %w", c.ID, err)
					}
					if !ok {
						continue
					}
				}
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// String returns the device for messages.
func (id ID) String() string { return id.Driver + "/" + id.Pool + "/" + id.Device }

func isReachableFrom(node *corev1.Node, name *string, selector *corev1.NodeSelector, all *bool) (bool, error) {
	switch {
	case name != nil:
		return *name == node.Name, nil
	case all != nil && *all:
		return true, nil
	case selector != nil:
		s, err := nodeaffinity.NewNodeSelector(selector)
		if err != nil {
			return false, err
		}
		return s.Match(node), nil
	}
	return false, nil
}

// taintsOf returns the taints of a device, from its driver and from rules.
func (a *Allocator) taintsOf(c *candidate) []resourcev1.DeviceTaint {
	out := c.Taints
	for _, r := range a.in.Rules {
		s := r.Spec.DeviceSelector
		if s == nil || s.Driver != nil && *s.Driver != c.ID.Driver || s.Pool != nil && *s.Pool != c.ID.Pool || s.Device != nil &&
			*s.Device != c.ID.Device {
			continue
		}
		out = append(slices.Clip(out), r.Spec.Taint)
	}
	return out
}

// toleratesAll reports whether a request tolerates all taints of a device.
func toleratesAll(taints []resourcev1.DeviceTaint, tolerations []resourcev1.DeviceToleration) bool {
	for _, t := range taints {
		if t.Effect != resourcev1.DeviceTaintEffectNoSchedule && t.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(o resourcev1.DeviceToleration) bool { return tolerates(o, t) }) {
			return false
		}
	}
	return true
}

func tolerates(o resourcev1.DeviceToleration, t resourcev1.DeviceTaint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	switch o.Operator {
	case "", resourcev1.DeviceTolerationOpEqual:
		return o.Value == t.Value
	case resourcev1.DeviceTolerationOpExists:
		return true
	}
	return false
}
