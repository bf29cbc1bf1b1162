package nodettl

import "testing"

func TestDecide(t *testing.T) {
	for _, c := range []struct{ stored, nodes, want int }{
		{-1, 1, 0}, {-1, 100, 0}, {-1, 101, 15}, {0, 100, 0}, {0, 101, 15}, {15, 95, 15}, {15, 89, 0}, {-1, 95, 0},
		{15, 501, 30}, {0, 3000, 300}, {300, 1800, 300}, {300, 1799, 60}, {60, 500, 30}, {7, 100, 15}, {7, 50, 0}, {9000, 3000, 300},
	} {
		if got := decide(c.stored, c.nodes); got != c.want {
			t.Errorf("%d seconds with %d nodes become %d, want %d", c.stored, c.nodes, got, c.want)
		}
	}
}
