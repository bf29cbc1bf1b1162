package device

import (
	"errors"
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts are how much is drawn of the capacities of a device.
type Amounts map[resourcev1.QualifiedName]resource.Quantity

// Used is what claims have of devices. Its zero value is nothing.
type Used struct {
	// Whole are the devices that belong to one claim.
	Whole map[ID]bool
	// Shares are the devices of which claims have a share, with what all shares draw. A share may draw nothing.
	Shares map[ID]Amounts
}

// Add counts what a claim has. Who has admin access has nothing.
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

// has says that a claim has a device, or a share of it.
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

// shared says that several claims can have a device at once.
func shared(d *resourcev1.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// draw is what a request draws of the capacities of a device. It is false if the device has not enough of one, not even
// when nobody else draws, or does not give out as much at once.
func draw(d *resourcev1.Device, asked Amounts) (Amounts, bool, error) {
	for name := range asked {
		if _, has := d.Capacity[name]; !has {
			return nil, false, nil
		}
	}
	out := Amounts{}
	for name, c := range d.Capacity {
		q, given := asked[name]
		amount, err := portion(c, q, given)
		if err == nil && amount.Sign() < 0 {
			err = errors.New("capacity value is negative")
		}
		if err != nil {
			return nil, false, fmt.Errorf("capacity %q: %w", name, err)
		}
		out[name] = amount
	}
	for name, c := range d.Capacity {
		if amount := out[name]; amount.Cmp(c.Value) > 0 || !permitted(amount, c.RequestPolicy) {
			return nil, false, nil
		}
	}
	return out, true, nil
}

// portion is how much of a capacity a request gets that asks for q: the next larger one that the device gives out. Who does
// not ask gets the default, or everything.
func portion(c resourcev1.DeviceCapacity, q resource.Quantity, given bool) (resource.Quantity, error) {
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

// permitted says that a policy lets an amount be drawn.
func permitted(q resource.Quantity, p *resourcev1.CapacityRequestPolicy) bool {
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

// nextStep is the least amount of a range that is enough: its minimum, or some steps more. It is reckoned in thousandths if
// the range can be expressed in them, and in whole numbers otherwise.
func nextStep(q resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) (resource.Quantity, error) {
	if q.Cmp(*r.Min) < 0 {
		return r.Min.DeepCopy(), nil
	}
	if r.Step == nil {
		return q, nil
	}
	unit := resource.Milli
	for _, bound := range []*resource.Quantity{r.Min, r.Max, r.Step} {
		if bound != nil && !exact(*bound, unit) {
			unit = 0
		}
	}
	tooLarge := q.CmpInt64(math.MaxInt64) > 0
	if unit == resource.Milli {
		tooLarge = !exact(q, unit)
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

// exact says that a quantity is a number of units.
func exact(q resource.Quantity, unit resource.Scale) bool {
	return resource.NewScaledQuantity(q.ScaledValue(unit), unit).Cmp(q) == 0
}
