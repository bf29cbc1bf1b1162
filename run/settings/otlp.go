package settings

import (
	"fmt"

	"proa.dev/trace/otlp"
)

// otlpSettings returns the settings of the export of spans to OpenTelemetry.
func otlpSettings() []Setting {
	return []Setting{
		{Name: "otlp-endpoint", Help: "send what is recorded of every write and of what it causes, as spans, to the OpenTelemetry receiver at `URL`, such as http://localhost:4318 or grpc://localhost:4317 (default none)",
			Set: setOne(func(c *Config, v string) error { c.OTLP.URL = v; return otlp.Endpoint{URL: v}.Check() })},
		{Name: "otlp-ca-file", Help: "trust the certificate authorities in `FILE` when sending to otlp-endpoint (default those of the system)",
			Set: setFile(func(c *Config) *string { return &c.OTLP.CAFile })},
	}
}

// checkOTLP returns what is wrong with the endpoint to which spans are sent.
func (c *Config) checkOTLP() error {
	switch {
	case c.OTLP.URL == "" && c.OTLP.CAFile != "":
		return fmt.Errorf("otlp-ca-file needs otlp-endpoint: say where spans go")
	case c.OTLP.URL == "":
		return nil
	case c.TraceRecords == 0:
		return fmt.Errorf("otlp-endpoint needs records: do not give trace-records as 0")
	}
	if err := c.OTLP.Check(); err != nil {
		return fmt.Errorf("otlp-endpoint: %w", err)
	}
	return nil
}
