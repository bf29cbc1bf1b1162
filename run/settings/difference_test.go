package settings

import (
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	stored := Values{"listen": {"127.0.0.1:7443"}, "tls-san": {"a", "b"}, "simulate": {"3"}, "node-labels": {"a=b,c=d"}}
	for _, c := range []struct {
		change Values
		want   string
	}{
		{Values{}, ""},
		{Values{"listen": {"127.0.0.1:7443"}}, ""},
		{Values{"listen": {"localhost:7443"}}, ""},
		{Values{"tls-san": {"a,b"}}, ""},
		{Values{"node-labels": {"c=d", "a=b"}}, ""},
		{Values{"name": {"proa"}}, ""}, // the default
		{Values{"listen": {"127.0.0.1:6443"}}, "listen"},
		{Values{"simulate": {"4"}, "name": {"other"}}, "name simulate"},
		{Values{"simulate": nil}, "simulate"},
	} {
		merged := Values{}
		for _, s := range []Values{stored, c.change} {
			for k, v := range s {
				merged[k] = v
			}
		}
		if got := strings.Join(stored.Changes(merged), " "); got != c.want {
			t.Errorf("%v changes %q, want %q", c.change, got, c.want)
		}
	}
}
