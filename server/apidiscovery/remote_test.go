package apidiscovery

import (
	"fmt"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// local returns descriptors of group versions that are served here.
func local(versions ...string) (out []*kind.Def) {
	for _, v := range versions {
		gv, _ := schema.ParseGroupVersion(v)
		d := &kind.Def{Traits: kind.Traits{GroupVersionKind: gv.WithKind("Thing"), Plural: "things"}}
		out = append(out, d)
	}
	return out
}

func remote(version string, group, priority int32, resources ...string) Remote {
	gv, _ := schema.ParseGroupVersion(version)
	r := Remote{GroupVersion: gv, GroupPriority: group, VersionPriority: priority, Stale: len(resources) == 0}
	for _, name := range resources {
		r.Resources = append(r.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: name})
	}
	return r
}

func TestRemoteGroups(t *testing.T) {
	defs := local("apiregistration.k8s.io/v1", "apps/v1", "metrics.k8s.io/v1beta1", "stable.example.com/v1", "stable.example.com/v2")
	all := []Remote{
		remote("metrics.k8s.io/v1beta1", 100, 100, "nodes", "pods"),
		remote("wardle.example.com/v1alpha1", 2000, 200, "flunders"),
		remote("wardle.example.com/v1beta1", 1000, 100),
		remote("stable.example.com/v3alpha1", 10, 500, "others"),
		remote("early.example.com/v1", 17900, 1, "birds"),
	}
	l := Groups(defs)
	AddGroups(l, all)
	var got []string
	for _, g := range l.Groups {
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		if g.PreferredVersion != g.Versions[0] {
			t.Errorf("%s prefers %s", g.Name, g.PreferredVersion.Version)
		}
		got = append(got, g.Name+" "+strings.Join(versions, ","))
	}
	want := "apiregistration.k8s.io v1; early.example.com v1; apps v1; wardle.example.com v1alpha1,v1beta1; stable.example.com v3alpha1,v2,v1; metrics.k8s.io v1beta1"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	a := Aggregated(defs, false)
	AddAggregated(a, all)
	got = nil
	for _, g := range a.Items {
		for _, v := range g.Versions {
			var names []string
			for _, r := range v.Resources {
				names = append(names, r.Resource)
			}
			got = append(got, fmt.Sprint(g.Name, "/", v.Version, " ", v.Freshness, " ", strings.Join(names, ",")))
		}
	}
	want = "apiregistration.k8s.io/v1 Current things; early.example.com/v1 Current birds; apps/v1 Current things; " +
		"wardle.example.com/v1alpha1 Current flunders; wardle.example.com/v1beta1 Stale ; " +
		"stable.example.com/v3alpha1 Current others; stable.example.com/v2 Current things; stable.example.com/v1 Current things; metrics.k8s.io/v1beta1 Current nodes,pods"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestRemoteGroup(t *testing.T) {
	all := []Remote{remote("wardle.example.com/v1alpha1", 1000, 15, "flunders")}
	if g := AddGroup(nil, "wardle.example.com", all); g == nil || g.Kind != "APIGroup" ||
		g.PreferredVersion.GroupVersion != "wardle.example.com/v1alpha1" {
		t.Errorf("got %+v", g)
	}
	if g := AddGroup(nil, "example.com", all); g != nil {
		t.Errorf("got %+v", g)
	}
	here := &metav1.APIGroup{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "apps/v1", Version: "v1"}}}
	if g := AddGroup(here, "apps", all); g != here || len(g.Versions) != 1 {
		t.Errorf("got %+v", g)
	}
}
