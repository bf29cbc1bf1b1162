package localcluster

import (
	"encoding/json"
	"testing"
	"time"
)

// TestCertificateAsJSON checks the fields of a certificate in "proa status -o json", which scripts read. The path of its file is not
// one of them.
func TestCertificateAsJSON(t *testing.T) {
	c := Certificate{
		Name: "ca", Subject: "CN=proa", CA: true, Signs: true, Expires: time.Unix(0, 0).UTC(), Names: []string{"localhost"},
		File: "/data/pki/ca.crt",
	}
	got, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"ca","subject":"CN=proa","ca":true,"signs":true,"expires":"1970-01-01T00:00:00Z","names":["localhost"]}`
	if string(got) != want {
		t.Errorf("a certificate is %s, want %s", got, want)
	}
}
