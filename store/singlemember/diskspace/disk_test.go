package diskspace

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFreeSpaceWithoutClock looks at the disk again when much was promised, although the clock stands still, and after
// a while although nothing was.
func TestFreeSpaceWithoutClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		d := Disk{Measure: func(string) int64 { looks++; return 100 << 20 }}
		for range 64 {
			if _, err := d.Admit(32<<10, Ordinary, func(free, _ int64) Space { return Space{Free: free} }); err != nil {
				t.Fatal(err)
			}
		}
		if looks < 4 || looks > 8 {
			t.Errorf("it was looked %d times while 4 MiB were promised", looks)
		}
		if free, promised := d.Available(); free+promised != 100<<20 || promised < 4<<20 {
			t.Errorf("%d are free, %d promised", free, promised)
		}
		looks = 0
		for range 10 {
			d.Available()
			time.Sleep(measureInterval / 4)
		}
		if looks < 1 || looks > 3 {
			t.Errorf("it was looked %d times in a quarter of a second", looks)
		}
	})
	d := Disk{Measure: FreeBytes, Dir: t.TempDir()}
	if free, _ := d.Available(); free <= 0 || !strings.Contains(d.measuredAt.String(), " m=") {
		t.Errorf("%d bytes are free, looked at %v, which is the wall clock only", free, d.measuredAt)
	}
}
