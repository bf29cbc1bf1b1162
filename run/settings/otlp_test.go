package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOTLPSettings(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	bad := filepath.Join(dir, "headers")
	for file, text := range map[string]string{empty: "", bad: "secret"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		values Values
		want   string // a part of the error; empty for none
	}{
		{Values{}, ""},
		{Values{"otlp-endpoint": {"http://localhost:4318"}}, ""},
		{Values{"otlp-endpoint": {"https://collector.example:4318/v1/traces"}}, ""},
		{Values{"otlp-endpoint": {"http://user:secret@localhost"}}, "without user"},
		{Values{"otlp-endpoint": {"unix:///run/x"}}, "must begin with http://"},
		{Values{"otlp-ca-file": {empty}}, "needs otlp-endpoint"},
		{Values{"otlp-headers-file": {empty}}, "needs otlp-endpoint"},
		{Values{"otlp-compression": {"gzip"}}, "needs otlp-endpoint"},
		{Values{"otlp-compression": {"none"}}, ""},
		{Values{"otlp-endpoint": {"http://localhost"}, "otlp-headers-file": {empty}}, ""},
		{Values{"otlp-endpoint": {"http://localhost"}, "otlp-headers-file": {bad}}, "line 1 is not NAME: VALUE"},
		{Values{"otlp-endpoint": {"http://localhost"}, "otlp-compression": {"gzip"}}, ""},
		{Values{"otlp-endpoint": {"http://localhost"}, "otlp-compression": {"zstd"}}, `"zstd" is none of gzip, none`},
		{Values{"otlp-endpoint": {"https://localhost"}, "otlp-ca-file": {empty}}, "no certificate in PEM"},
		{Values{"otlp-endpoint": {"http://localhost:4318"}, "trace-records": {"0"}}, "do not give trace-records as 0"},
	} {
		config, err := Load("", c.values)
		if err == nil {
			err = config.Validate()
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%v: %v, want %q", c.values, err, c.want)
		}
	}
}
