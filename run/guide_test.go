package run

import (
	"os"
	"strings"
	"testing"
)

// TestGuideNamesControllersThatUpstreamLacks checks that the controllers which the guide runs beside kube-controller-manager exist.
func TestGuideNamesControllersThatUpstreamLacks(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide/controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(guide), "proa server --controllers certificate-controller,")
	names, _, _ := strings.Cut(rest, "\n")
	c := Default()
	c.Controllers = append(strings.Split(names, ","), "certificate-controller")
	if err := c.checkControllers(); err != nil || !found || len(c.Controllers) < 10 {
		t.Errorf("%v: %v", c.Controllers, err)
	}
}
