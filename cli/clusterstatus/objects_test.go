package clusterstatus

import "testing"

func TestParseObjects(t *testing.T) {
	got := parseObjects([]byte("# HELP x y\napiserver_resource_objects{group=\"apps\",resource=\"deployments\"} 3\napiserver_resource_objects{group=\"\",resource=\"pods\"} 0\nother{a=\"b\"} 1\n"), "apiserver_resource_objects{")
	if len(got) != 1 || got["deployments.apps"] != 3 {
		t.Errorf("got %v", got)
	}
}
