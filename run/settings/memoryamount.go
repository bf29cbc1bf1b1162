package settings

import (
	"fmt"

	"proa.dev/kinds/lib/quantity"
)

// parseMemory reads an amount of memory, such as 2Gi.
func parseMemory(v string) (int64, error) {
	q, err := quantity.Parse(v)
	if err != nil || q.Value() < 64<<20 {
		return 0, fmt.Errorf("%q is not an amount of memory of 64Mi or more, such as 2Gi", v)
	}
	return q.Value(), nil
}
