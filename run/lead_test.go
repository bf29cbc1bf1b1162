package run

import (
	"slices"
	"testing"

	"proa.dev/control"
)

// TestHoldOnlyWhatRuns: a server contends for the Leases of what it runs, and for no other.
func TestHoldOnlyWhatRuns(t *testing.T) {
	for _, tt := range []struct {
		controllers []string
		want        []string
	}{
		{nil, []string{managerName, schedulerName}},
		{[]string{"*", "-" + schedulerName}, []string{managerName}},
		{[]string{"-" + schedulerName}, nil},
		{[]string{schedulerName}, []string{schedulerName}},
		{[]string{"deployment-controller", "simulated-nodes"}, []string{managerName}},
		{[]string{"simulated-nodes", "local-path-provisioner"}, []string{ownLoops}},
	} {
		s := &Server{Config: Config{EtcdServers: []string{"http://127.0.0.1:1"}, Controllers: tt.controllers, Simulate: 1}}
		var got []string
		for _, e := range s.elections() {
			got = append(got, e.lease)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("with --controllers %v the server contends for %v, want %v", tt.controllers, got, tt.want)
		}
	}
}

// TestNotOfManager: the names are those of controllers that there are.
func TestNotOfManager(t *testing.T) {
	s := &Server{Config: Config{Simulate: 1}}
	all := s.every()
	for _, name := range notOfManager() {
		if !slices.ContainsFunc(all, func(c control.Controller) bool { return c.Name == name }) {
			t.Errorf("there is no controller %s", name)
		}
	}
}
