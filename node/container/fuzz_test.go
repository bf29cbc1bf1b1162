package container

import (
	"strings"
	"testing"
)

// FuzzResolv checks that entries of the node's resolv.conf can be written into that of a Pod: none has spaces or newlines.
func FuzzResolv(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nsearch a.example. b.example .\noptions ndots:5 rotate\n# a comment\nnameserver\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseResolv(text)
		if err != nil {
			return
		}
		for _, list := range [][]string{r.servers, r.searches, r.options} {
			for _, word := range list {
				if strings.ContainsAny(word, " \t\r\n") {
					t.Errorf("%q contains a blank", word)
				}
			}
		}
	})
}

// FuzzMappings checks that only a whole range of ids for Pods is accepted from a Pod's file, never ids of the host.
func FuzzMappings(f *testing.F) {
	f.Add([]byte(`{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseMappings(text, perPod)
		if err == nil && (m.Host < perPod || m.Host%perPod != 0 || m.Length != perPod || m.Container != 0) {
			t.Errorf("%s gives %+v", text, m)
		}
	})
}

// FuzzUsers checks that files of subordinate ids are either parsed or rejected with an error.
func FuzzUsers(f *testing.F) {
	f.Add("kubelet:65536:7208960\nother:1:2\n", "kubelet:65536:7208960\n", "kubelet")
	f.Add("a:4294967296:1\n", "a:4294967296:1\n", "a")
	f.Fuzz(func(t *testing.T, uids, gids, user string) {
		first, count, found, err := ParseUsers(uids, gids, user)
		if (err != nil || !found) && (first != 0 || count != 0) {
			t.Errorf("%d and %d, although %t, %v", first, count, found, err)
		}
	})
}
