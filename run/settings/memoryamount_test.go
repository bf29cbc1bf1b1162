package settings

import "testing"

func TestParseMemory(t *testing.T) {
	for v, want := range map[string]int64{"2Gi": 2 << 30, "64Mi": 64 << 20, "1e9": 1e9, "63Mi": 0, "-1": 0, "much": 0} {
		if got, err := parseMemory(v); got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d %v", v, got, err)
		}
	}
}
