package fairqueue

import (
	"cmp"
	"math"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"proa.dev/kinds/flowcontrol"
)

// bounds are the seats of a level.
type bounds struct {
	nominal int // its share
	lower   int // what it has even if it lends all it may
	upper   int // what it has when it borrows all it may
}

// divideSeats divides seats between levels. It returns the sum of the shares, which are rounded up.
func divideSeats(total int, levels []*flowcontrolv1.PriorityLevelConfiguration) (out map[string]bounds, room int) {
	sum := 0.0
	for _, l := range levels {
		sum += float64(shares(l))
	}
	out = map[string]bounds{}
	for _, l := range levels {
		b := bounds{upper: total}
		if sum > 0 {
			b.nominal = int(math.Ceil(float64(total) * float64(shares(l)) / sum))
		}
		lend := 0
		if p := lendable(l); p != nil {
			lend = int(math.Round(float64(b.nominal) * float64(*p) / 100))
		}
		b.lower = b.nominal - lend
		if limited := l.Spec.Limited; limited != nil && limited.BorrowingLimitPercent != nil {
			b.upper = b.nominal + int(math.Round(float64(b.nominal)*float64(*limited.BorrowingLimitPercent)/100))
		}
		if l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
			b = bounds{nominal: b.nominal} // it takes no seats, and others may use its share
		}
		out[l.Name] = b
		room += b.nominal
	}
	return out, room
}

func shares(l *flowcontrolv1.PriorityLevelConfiguration) int32 {
	switch {
	case l.Spec.Limited != nil && l.Spec.Limited.NominalConcurrencyShares != nil:
		return *l.Spec.Limited.NominalConcurrencyShares
	case l.Spec.Limited != nil:
		return 30 // the default of the API
	case l.Spec.Exempt != nil && l.Spec.Exempt.NominalConcurrencyShares != nil:
		return *l.Spec.Exempt.NominalConcurrencyShares
	}
	return 0
}

func lendable(l *flowcontrolv1.PriorityLevelConfiguration) *int32 {
	switch {
	case l.Spec.Limited != nil:
		return l.Spec.Limited.LendablePercent
	case l.Spec.Exempt != nil:
		return l.Spec.Exempt.LendablePercent
	}
	return nil
}

// withMandatory adds the mandatory schemas and levels, or all suggested ones when there are none at all, and sorts the
// schemas in the order in which they are tried.
func withMandatory(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) ([]*flowcontrolv1.FlowSchema,
	[]*flowcontrolv1.PriorityLevelConfiguration) {
	if len(schemas)+len(levels) == 0 {
		schemas, levels = flowcontrol.Schemas(), flowcontrol.Levels()
	}
	schemas, levels = slices.Clone(schemas), slices.Clone(levels)
	for _, must := range flowcontrol.MandatorySchemas() {
		if !slices.ContainsFunc(schemas, func(s *flowcontrolv1.FlowSchema) bool { return s.Name == must.Name }) {
			schemas = append(schemas, must)
		}
	}
	for _, must := range flowcontrol.MandatoryLevels() {
		if !slices.ContainsFunc(levels, func(l *flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == must.Name }) {
			levels = append(levels, must)
		}
	}
	slices.SortFunc(schemas, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	return schemas, levels
}
