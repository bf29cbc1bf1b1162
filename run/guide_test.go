package run

import (
	"os"
	"slices"
	"strings"
	"testing"

	"proa.dev/run/controllerlease"
)

// TestGuideNamesControllersThatUpstreamLacks checks that the controllers which the guide runs beside kube-controller-manager are those
// that it lacks, and that a server with these leaves the manager's Lease alone.
func TestGuideNamesControllersThatUpstreamLacks(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide/controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "## With upstream's kube-controller-manager")
	_, rest, _ = strings.Cut(rest, "\nproa server --controllers ")
	names, _, _ := strings.Cut(rest, "\n")
	want := slices.DeleteFunc(controllerlease.Additional(), func(name string) bool { return strings.HasPrefix(name, "simulated-") })
	slices.Sort(want)
	if names != strings.Join(want, ",") {
		t.Errorf("the guide has\n%s, want\n%s", names, strings.Join(want, ","))
	}
	c := Default()
	c.Controllers, c.EtcdServers = want, []string{"http://127.0.0.1:1"}
	if err := c.checkControllers(); err != nil {
		t.Error(err)
	}
	if got := (&Server{Config: c}).elections(); len(got) != 1 || got[0].lease != controllerlease.Own {
		t.Errorf("the server contends for %+v", got)
	}
}
