package interfaces

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestInterruptedLists checks that a list that was changed while it was read is read again, and that other errors are returned.
func TestInterruptedLists(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		interruptions int
		then          error
		reads         int
		want          error
	}{{0, nil, 1, nil}, {2, nil, 3, nil}, {2, broken, 3, broken}, {100, nil, attempts, nil}} {
		reads := 0
		got, err := complete(func() ([]int, error) {
			if reads++; reads <= c.interruptions {
				return []int{reads}, netlink.ErrDumpInterrupted
			}
			return []int{reads}, c.then
		})
		if reads != c.reads || !errors.Is(err, c.want) || len(got) != 1 || got[0] != reads {
			t.Errorf("%+v: %v, %v after %d reads", c, got, err, reads)
		}
	}
}
