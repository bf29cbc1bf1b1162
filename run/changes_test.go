package run

import (
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	stored := Said{"listen": {"127.0.0.1:7443"}, "tls-san": {"a", "b"}, "simulate": {"3"}, "node-labels": {"a=b,c=d"}}
	for _, c := range []struct {
		change Said
		want   string
	}{
		{Said{}, ""},
		{Said{"listen": {"127.0.0.1:7443"}}, ""},
		{Said{"listen": {"localhost:7443"}}, ""},
		{Said{"tls-san": {"a,b"}}, ""},
		{Said{"node-labels": {"c=d", "a=b"}}, ""},
		{Said{"name": {"proa"}}, ""}, // the default
		{Said{"listen": {"127.0.0.1:6443"}}, "listen"},
		{Said{"simulate": {"4"}, "name": {"other"}}, "name simulate"},
		{Said{"simulate": nil}, "simulate"},
	} {
		merged := Said{}
		for _, s := range []Said{stored, c.change} {
			for k, v := range s {
				merged[k] = v
			}
		}
		if got := strings.Join(stored.Changes(merged), " "); got != c.want {
			t.Errorf("%v changes %q, want %q", c.change, got, c.want)
		}
	}
}
