package settings

import "testing"

// TestTraceSettings checks the settings for the number of records that are kept and for keeping bodies.
func TestTraceSettings(t *testing.T) {
	for _, c := range []struct {
		setting, value string
		records        int
		noBodies, ok   bool
	}{
		{"trace-records", "0", 0, false, true},
		{"trace-records", "100", 100, false, true},
		{"trace-records", "262144", 262144, false, true},
		{"trace-records", "262145", defaultTraceRecords, false, false},
		{"trace-records", "-1", defaultTraceRecords, false, false},
		{"trace-records", "many", defaultTraceRecords, false, false},
		{"trace-bodies", "false", defaultTraceRecords, true, true},
		{"trace-bodies", "true", defaultTraceRecords, false, true},
	} {
		config := Default()
		for _, s := range traceSettings() {
			if s.Name != c.setting {
				continue
			}
			if err := s.Set(&config, []string{c.value}); (err == nil) != c.ok {
				t.Errorf("%s=%s: %v", c.setting, c.value, err)
			}
		}
		if config.TraceRecords != c.records || config.NoTraceBodies != c.noBodies {
			t.Errorf("%s=%s: %d records, no bodies %t", c.setting, c.value, config.TraceRecords, config.NoTraceBodies)
		}
	}
}
