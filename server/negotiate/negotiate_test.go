package negotiate

import (
	"net/http/httptest"
	"testing"

	"proa.dev/kinds/lib/codec"
)

// TestHighestWeightOfAcceptWins checks that the clause of an Accept header with the highest weight wins, in any order.
func TestHighestWeightOfAcceptWins(t *testing.T) {
	for header, want := range map[string]codec.Media{
		"application/json;q=0.1, application/yaml;q=0.9":                          codec.YAML,
		"application/yaml;q=0.9, application/json":                                codec.JSON,
		"application/yaml, application/json":                                      codec.YAML,
		"application/yaml;q=0.5, application/json;q=0.5":                          codec.YAML,
		"application/yaml;q=nonsense, application/json;q=0.9":                     codec.YAML,
		"text/html, application/yaml;q=0.2, */*;q=0.1":                            codec.YAML,
		"*/*;q=0.1, application/vnd.kubernetes.protobuf;q=0.2, text/html;level=1": codec.Proto,
	} {
		req := httptest.NewRequest("GET", "/api/v1/pods", nil)
		req.Header.Set("Accept", header)
		f, err := Format(req, true, false, false)
		if err != nil || f.Media != want {
			t.Errorf("%s: %v, %v, want %v", header, f.Media.ContentType(), err, want.ContentType())
		}
	}
}

// TestPretty checks that an indented response can be requested in the query and in the Accept header.
func TestPretty(t *testing.T) {
	for _, c := range []struct {
		query, accept string
		want          bool
	}{{"", "application/json", false}, {"", "application/json;pretty=1", true}, {"?pretty=true", "application/json", true}, {"?pretty=0",
		"", false}} {
		req := httptest.NewRequest("GET", "/api/v1/pods"+c.query, nil)
		req.Header.Set("Accept", c.accept)
		if f, err := Format(req, true, false, false); err != nil || f.Pretty != c.want {
			t.Errorf("%+v: %v, %v", c, f.Pretty, err)
		}
	}
}
