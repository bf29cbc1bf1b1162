package validate

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// violations returns errors for the bounds of one limit that the requests and limits violate.
func violations(l *corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	for name, least := range sortedByName(l.Min) {
		errs = appendError(errs, atLeast(l.Type, name, least, requests, limits))
	}
	for name, most := range sortedByName(l.Max) {
		errs = appendError(errs, atMost(l.Type, name, most, requests, limits))
	}
	for name, ratio := range sortedByName(l.MaxLimitRequestRatio) {
		errs = appendError(errs, ratioAtMost(l.Type, name, ratio, requests, limits))
	}
	return errs
}

func appendError(errs []error, err error) []error {
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// sortedByName iterates over a list by name, so that error messages are stable.
func sortedByName(list corev1.ResourceList) iter.Seq2[corev1.ResourceName, resource.Quantity] {
	return func(yield func(corev1.ResourceName, resource.Quantity) bool) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !yield(name, list[name]) {
				return
			}
		}
	}
}

// scaled makes quantities comparable: in thousandths, unless one is too large for that.
func scaled(list ...resource.Quantity) []int64 {
	values := make([]int64, len(list))
	fine := true
	for i := range list {
		values[i] = list[i].Value()
		fine = fine && values[i] <= resource.MaxMilliValue
	}
	for i := range list {
		if fine {
			values[i] = list[i].MilliValue()
		}
	}
	return values
}

func atLeast(on corev1.LimitType, name corev1.ResourceName, least resource.Quantity, requests, limits corev1.ResourceList) error {
	request, requested := requests[name]
	limit, limited := limits[name]
	v := scaled(request, limit, least)
	switch {
	case !requested:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, on, least.String())
	case v[0] < v[2]:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, on, least.String(), request.String())
	case limited && v[1] < v[2]:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, on, least.String(), limit.String())
	}
	return nil
}

func atMost(on corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	request, requested := requests[name]
	limit, limited := limits[name]
	v := scaled(request, limit, most)
	switch {
	case !limited:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, on, most.String())
	case v[1] > v[2]:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, on, most.String(), limit.String())
	case requested && v[0] > v[2]:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, on, most.String(), request.String())
	}
	return nil
}

func requestAtMost(on corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests corev1.ResourceList) error {
	request, requested := requests[name]
	v := scaled(request, most)
	switch {
	case !requested:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, on, most.String())
	case v[0] > v[1]:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, on, most.String(), request.String())
	}
	return nil
}

func ratioAtMost(on corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	v := scaled(requests[name], limits[name], most)
	switch {
	case v[0] == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, on, most.String())
	case v[1] == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, on, most.String())
	}
	ratio := float64(v[1]) / float64(v[0])
	over := ratio > float64(most.Value())
	if most.Value() <= resource.MaxMilliValue {
		over = ratio*1000 > float64(most.MilliValue())
	}
	if over {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, on, most.String(), ratio)
	}
	return nil
}
