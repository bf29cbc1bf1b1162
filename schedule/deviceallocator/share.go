package deviceallocator

import (
	"errors"
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts has how much of each capacity of a device is consumed.
type Amounts map[resourcev1.QualifiedName]resource.Quantity

// Used has the allocated devices. The zero value is empty.
type Used struct {
	// Whole has the devices that are allocated to one claim.
	Whole map[ID]bool
	// Shares has the shared devices, with the sum of what their shares consume. A share may consume nothing.
	Shares map[ID]Amounts
}

// Add adds the devices of an allocation. Devices with admin access are not counted.
func (u *Used) Add(a *resourcev1.AllocationResult) {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		id := ID{r.Driver, r.Pool, r.Device}
		switch {
		case r.AdminAccess != nil && *r.AdminAccess:
		case r.ShareID == nil:
			if u.Whole == nil {
				u.Whole = map[ID]bool{}
			}
			u.Whole[id] = true
		default:
			if u.Shares == nil {
				u.Shares = map[ID]Amounts{}
			}
			if u.Shares[id] == nil {
				u.Shares[id] = Amounts{}
			}
			u.Shares[id].add(r.ConsumedCapacity)
		}
	}
}

// has reports whether a device or a share of it is allocated.
func (u *Used) has(id ID) bool {
	_, shared := u.Shares[id]
	return u.Whole[id] || shared
}

func (a Amounts) add(more Amounts) {
	for name, q := range more {
		sum := a[name].DeepCopy()
		sum.Add(q)
		a[name] = sum
	}
}

func (a Amounts) sub(less Amounts) {
	for name, q := range less {
		sum := a[name].DeepCopy()
		sum.Sub(q)
		a[name] = sum
	}
}

// isShared reports whether several claims can use a device at once.
func isShared(d *resourcev1.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// consumption returns what a request consumes of the capacities of a device. It returns false if the device does not have
// enough of one, even if it is not shared, or its policy does not allow the amount.
func consumption(d *resourcev1.Device, asked Amounts) (Amounts, bool, error) {
	for name := range asked {
		if _, has := d.Capacity[name]; !has {
			return nil, false, nil
		}
	}
	out := Amounts{}
	for name, c := range d.Capacity {
		q, given := asked[name]
		amount, err := consumedAmount(c, q, given)
		if err == nil && amount.Sign() < 0 {
			err = errors.New("capacity value is negative")
		}
		if err != nil {
			return nil, false, fmt.Errorf("capacity %q: %w", name, err)
		}
		out[name] = amount
	}
	for name, c := range d.Capacity {
		if amount := out[name]; amount.Cmp(c.Value) > 0 || !isPermitted(amount, c.RequestPolicy) {
			return nil, false, nil
		}
	}
	return out, true, nil
}

// consumedAmount returns how much of a capacity is consumed by a request for q: the next larger amount that the policy allows.
// Without a request it is the default, or all of the capacity.
func consumedAmount(c resourcev1.DeviceCapacity, q resource.Quantity, given bool) (resource.Quantity, error) {
	p := c.RequestPolicy
	switch {
	case !given && p != nil && p.Default != nil:
		return p.Default.DeepCopy(), nil
	case !given:
		return c.Value.DeepCopy(), nil
	case p == nil:
	case p.ValidRange != nil && p.ValidRange.Min != nil:
		return nextStep(q, p.ValidRange)
	default:
		for _, v := range p.ValidValues { // they are sorted
			if q.Cmp(v) <= 0 {
				return v.DeepCopy(), nil
			}
		}
	}
	return q, nil
}

// isPermitted reports whether a policy allows an amount.
func isPermitted(q resource.Quantity, p *resourcev1.CapacityRequestPolicy) bool {
	switch {
	case p == nil || p.Default != nil && q.Cmp(*p.Default) == 0:
		return true
	case p.ValidRange != nil:
		if p.ValidRange.Max != nil && q.Cmp(*p.ValidRange.Max) > 0 {
			return false
		}
		if p.ValidRange.Min == nil || p.ValidRange.Step == nil {
			return true
		}
		next, err := nextStep(q, p.ValidRange)
		return err == nil && next.Cmp(q) == 0
	case len(p.ValidValues) > 0:
		for _, v := range p.ValidValues {
			if q.Cmp(v) == 0 {
				return true
			}
		}
		return false
	}
	return true
}

var errTooFine = errors.New("capacity request cannot be represented in the device's range arithmetic")

// nextStep returns the smallest amount of a range that is at least q: its minimum plus some steps. It computes in
// thousandths if the range can be expressed in them, and in whole numbers otherwise.
func nextStep(q resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) (resource.Quantity, error) {
	if q.Cmp(*r.Min) < 0 {
		return r.Min.DeepCopy(), nil
	}
	if r.Step == nil {
		return q, nil
	}
	unit := resource.Milli
	for _, bound := range []*resource.Quantity{r.Min, r.Max, r.Step} {
		if bound != nil && !isWholeNumber(*bound, unit) {
			unit = 0
		}
	}
	tooLarge := q.CmpInt64(math.MaxInt64) > 0
	if unit == resource.Milli {
		tooLarge = !isWholeNumber(q, unit)
	}
	low, step := r.Min.ScaledValue(unit), r.Step.ScaledValue(unit)
	if tooLarge || low < 0 || step <= 0 {
		return resource.Quantity{}, fmt.Errorf("%w: request %s", errTooFine, q.String())
	}
	n := (q.ScaledValue(unit) - low) / step
	if n > (math.MaxInt64-low)/step-1 {
		return resource.Quantity{}, fmt.Errorf("%w: rounding request %s up to the next step", errTooFine, q.String())
	}
	value := low + n*step
	if value < q.ScaledValue(unit) {
		value += step
	}
	if unit == resource.Milli && value%1000 == 0 {
		value, unit = value/1000, 0
	}
	out := resource.NewScaledQuantity(value, unit)
	out.Format = r.Step.Format
	return *out, nil
}

// isWholeNumber reports whether a quantity is a whole number of units.
func isWholeNumber(q resource.Quantity, unit resource.Scale) bool {
	return resource.NewScaledQuantity(q.ScaledValue(unit), unit).Cmp(q) == 0
}
