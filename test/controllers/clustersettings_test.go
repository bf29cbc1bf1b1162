package controllers

import (
	"testing"

	"proa.dev/control/clustersettings"
	"proa.dev/control/controltest"
)

func TestClusterSettings(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"cluster-cidr": "10.244.0.0/16", "cluster-domain": "example.test"}
	controltest.Scripts(t, "../../control/clustersettings/testdata/*.txt",
		clustersettings.Controller(func() map[string]string { return settings }))
}
