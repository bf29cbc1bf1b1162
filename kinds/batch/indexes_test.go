package batch

import (
	"testing"
	"time"
)

func FuzzParseIndexes(f *testing.F) {
	for _, seed := range []string{"", "0", "1,3-5", "5-3", "0,0", "1-2-3", "-1", "99999999999999999999"} {
		f.Add(seed, int32(10))
	}
	f.Fuzz(func(t *testing.T, list string, completions int32) {
		intervals, err := parseIndexes(list, completions)
		if err != nil {
			return
		}
		for i, in := range intervals {
			if in.first > in.last || in.last >= completions {
				t.Errorf("%q: interval %v with %d completions", list, in, completions)
			}
			if i > 0 && intervals[i-1].last >= in.first {
				t.Errorf("%q: %v after %v", list, in, intervals[i-1])
			}
		}
	})
}

func FuzzParseSchedule(f *testing.F) {
	for _, seed := range []string{"@daily", "*/5 * * * *", "TZ=0", "CRON_TZ=", "", "@every 1h"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, schedule string) { _ = parseSchedule(schedule) })
}

func TestTimeZonesAreAvailable(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"} {
		if errs := validateTimeZone(zone, nil); len(errs) > 0 {
			t.Errorf("%s: %v", zone, errs)
		}
		if _, err := time.LoadLocation(zone); err != nil {
			t.Error(err)
		}
	}
}
