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
		{Name: "otlp-headers-file", Help: "send the headers in `FILE`, NAME: VALUE in each line, such as a credential, to otlp-endpoint (default only those of OTEL_EXPORTER_OTLP_HEADERS)",
			Set: setFile(func(c *Config) *string { return &c.OTLP.HeadersFile })},
		{Name: "otlp-compression", Help: "`HOW` what is sent to otlp-endpoint is compressed: gzip or none (default none)",
			Set: setOne(func(c *Config, v string) error {
				if v != "gzip" && v != "none" {
					return fmt.Errorf("%q is none of gzip, none", v)
				}
				c.OTLP.Gzip = v == "gzip"
				return nil
			})},
	}
}

// checkOTLP returns what is wrong with the endpoint to which spans are sent.
func (c *Config) checkOTLP() error {
	switch {
	case c.OTLP.URL == "" && c.OTLP.CAFile != "":
		return fmt.Errorf("otlp-ca-file needs otlp-endpoint: say where spans go")
	case c.OTLP.URL == "" && c.OTLP.HeadersFile != "":
		return fmt.Errorf("otlp-headers-file needs otlp-endpoint: say where spans go")
	case c.OTLP.URL == "" && c.OTLP.Gzip:
		return fmt.Errorf("otlp-compression needs otlp-endpoint: say where spans go")
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
