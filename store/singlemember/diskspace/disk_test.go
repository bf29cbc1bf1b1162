package diskspace

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFreeSpaceIsMeasuredAgain checks that free space is measured again when much was admitted, although no time has passed,
// and after some time, although nothing was admitted.
func TestFreeSpaceIsMeasuredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		measured := 0
		d := Disk{Measure: func(string) int64 { measured++; return 100 << 20 }}
		for range 64 {
			if _, err := d.Admit(32<<10, Ordinary, func(free, _ int64) Space { return Space{Free: free} }); err != nil {
				t.Fatal(err)
			}
		}
		if measured < 4 || measured > 8 {
			t.Errorf("it was measured %d times while 4 MiB were admitted", measured)
		}
		if free, promised := d.Available(); free+promised != 100<<20 || promised < 4<<20 {
			t.Errorf("%d are free, %d promised", free, promised)
		}
		measured = 0
		for range 10 {
			d.Available()
			time.Sleep(measureInterval / 4)
		}
		if measured < 1 || measured > 3 {
			t.Errorf("it was measured %d times in ten quarters of the interval", measured)
		}
	})
	d := Disk{Measure: FreeBytes, Dir: t.TempDir()}
	if free, _ := d.Available(); free <= 0 || !strings.Contains(d.measuredAt.String(), " m=") {
		t.Errorf("%d bytes are free, looked at %v, which is the wall clock only", free, d.measuredAt)
	}
}
