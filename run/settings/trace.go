package settings

import (
	"fmt"
	"strconv"
)

const (
	// defaultTraceRecords is how many records a server keeps by default: they take less than 20 MB at worst.
	defaultTraceRecords = 8192
	// maxTraceRecords is the largest number that can be set. So many records take about 500 MB at worst.
	maxTraceRecords = 1 << 18
)

// traceSettings returns the settings of what the server records of writes.
func traceSettings() []Setting {
	return []Setting{
		{Name: "trace-records", Help: "keep in memory what `N` recent writes and reconciles did at each hop, for proa trace; 0 records nothing (default 8192)",
			Set: setOne(func(c *Config, v string) error {
				n, err := strconv.Atoi(v)
				if err != nil || n < 0 || n > maxTraceRecords {
					return fmt.Errorf("%q is not a number between 0 and %d", v, maxTraceRecords)
				}
				c.TraceRecords = n
				return nil
			})},
		{Name: "trace-bodies", Help: "`BOOL`: keep up to 1 MiB of the bodies of recent writes and their answers in memory, but not those of Secrets and tokens, for proa trace --wire (default true)",
			Set: setOne(func(c *Config, v string) error {
				on, err := strconv.ParseBool(v)
				c.NoTraceBodies = !on
				return err
			})},
	}
}
