package quantity

import "k8s.io/apimachinery/pkg/api/resource"

// MaxAmount is the largest amount that Value and MilliValue return, 2 PiB or two million million CPUs: a thousand of them can still be
// added up, where the largest int64 would overflow.
const MaxAmount = 1 << 51

// Value returns a quantity as an integer, at most MaxAmount. The method of that name returns anything, zero and negative numbers too,
// for a quantity that is too large.
func Value(q *resource.Quantity) int64 {
	if q.CmpInt64(MaxAmount) >= 0 {
		return MaxAmount
	}
	return q.Value()
}

// MilliValue returns a quantity in thousandths, at most MaxAmount of them.
func MilliValue(q *resource.Quantity) int64 {
	if q.CmpInt64(MaxAmount/1000) >= 0 {
		return MaxAmount
	}
	return q.MilliValue()
}
