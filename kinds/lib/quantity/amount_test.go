package quantity_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/lib/quantity"
)

// TestAmountsDoNotOverflow adds up quantities whose own methods overflow: three times the first is -3000 thousandths.
func TestAmountsDoNotOverflow(t *testing.T) {
	const most = quantity.MaxAmount
	for text, want := range map[string][2]int64{ // the integer, and the thousandths of three of them
		"9223372036854775807": {most, most}, "9E": {most, most}, "100E": {most, most}, "99999999999999999999": {most, most},
		"1e999": {most, most},
		"0":     {0, 0}, "1": {3, 3000}, "100m": {1, 300}, "1500m": {5, 4500}, "1Gi": {3 << 30, 3 << 30 * 1000}, "2T": {6e12, most},
		"1e-999": {1, 1}, "-1": {-3, -3000},
	} {
		one := resource.MustParse(text)
		sum := one.DeepCopy()
		sum.Add(one)
		sum.Add(one)
		if got := [2]int64{quantity.Value(&sum), quantity.MilliValue(&sum)}; got != want {
			t.Errorf("three times %s: got %v, want %v", text, got, want)
		}
	}
}
