package run

import (
	"slices"
	"testing"

	"proa.dev/control"
	"proa.dev/run/controllerlease"
	"proa.dev/run/settings"
)

// TestElectionsOfEnabledControllers checks that a server contends for the Leases of the controllers that it runs, and for no other.
func TestElectionsOfEnabledControllers(t *testing.T) {
	for _, tt := range []struct {
		controllers []string
		want        []string
	}{
		{nil, []string{controllerlease.Manager, schedulerName}},
		{[]string{"*", "-" + schedulerName}, []string{controllerlease.Manager}},
		{[]string{"-" + schedulerName}, nil},
		{[]string{schedulerName}, []string{schedulerName}},
		{[]string{"deployment-controller", "simulated-nodes"}, []string{controllerlease.Manager}},
		{[]string{"simulated-nodes", "local-path-provisioner"}, []string{controllerlease.Own}},
	} {
		s := &Server{Config: Config{Config: settings.Config{EtcdServers: []string{"http://127.0.0.1:1"}, Controllers: tt.controllers,
			Simulate: 1}}}
		var got []string
		for _, e := range s.elections() {
			got = append(got, e.lease)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("with --controllers %v the server contends for %v, want %v", tt.controllers, got, tt.want)
		}
	}
}

// TestAdditionalControllersExist checks that every name in controllerlease.Additional is that of a controller.
func TestAdditionalControllersExist(t *testing.T) {
	s := &Server{Config: Config{Config: settings.Config{Simulate: 1}}}
	all := s.allControllers()
	for _, name := range controllerlease.Additional() {
		if !slices.ContainsFunc(all, func(c control.Controller) bool { return c.Name == name }) {
			t.Errorf("there is no controller %s", name)
		}
	}
}
