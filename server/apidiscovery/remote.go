package apidiscovery

import (
	"cmp"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"proa.dev/kinds/apiregistration"
)

// Remote is a group version that an aggregated API server serves, with the priorities of its APIService.
type Remote struct {
	schema.GroupVersion
	GroupPriority, VersionPriority int32
	// Resources are those in the server's discovery. A server that does not respond has none, and is stale.
	Resources []apidiscoveryv2.APIResourceDiscovery
	Stale     bool
}

// AddGroups adds the group versions of aggregated servers to the document at /apis. A group that is served here too
// stays in its place.
func AddGroups(l *metav1.APIGroupList, remote []Remote) {
	if len(remote) == 0 {
		return
	}
	for _, r := range remote {
		at := slices.IndexFunc(l.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group })
		if at < 0 {
			at = len(l.Groups)
			l.Groups = append(l.Groups, metav1.APIGroup{Name: r.Group})
		}
		addVersion(&l.Groups[at], r)
	}
	ranks := ranksOf(remote)
	for i := range l.Groups {
		ranks.sortVersions(&l.Groups[i])
	}
	slices.SortStableFunc(l.Groups, func(a, b metav1.APIGroup) int { return ranks.compare(a.Name, b.Name) })
}

// AddGroup adds the group versions of aggregated servers to the document of a group, which is nil when no version of it
// is served here. It returns nil when nobody serves the group.
func AddGroup(g *metav1.APIGroup, name string, remote []Remote) *metav1.APIGroup {
	for _, r := range remote {
		if r.Group != name {
			continue
		}
		if g == nil {
			g = &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
		}
		addVersion(g, r)
	}
	if g != nil {
		ranksOf(remote).sortVersions(g)
	}
	return g
}

func addVersion(g *metav1.APIGroup, r Remote) {
	if !slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == r.Version }) {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: r.String(), Version: r.Version})
	}
}

// AddAggregated adds the group versions of aggregated servers to the aggregated document. Where a version is served
// here too, theirs replaces it, because requests go there.
func AddAggregated(l *apidiscoveryv2.APIGroupDiscoveryList, remote []Remote) {
	if len(remote) == 0 {
		return
	}
	for _, r := range remote {
		at := slices.IndexFunc(l.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == r.Group })
		if at < 0 {
			at = len(l.Items)
			l.Items = append(l.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: r.Group}})
		}
		g := &l.Items[at]
		v := apidiscoveryv2.APIVersionDiscovery{Version: r.Version, Resources: r.Resources,
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		if r.Stale {
			v.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		if have := slices.IndexFunc(g.Versions,
			func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == r.Version }); have >= 0 {
			g.Versions[have] = v
		} else {
			g.Versions = append(g.Versions, v)
		}
	}
	ranks := ranksOf(remote)
	for _, g := range l.Items {
		slices.SortStableFunc(g.Versions, func(a, b apidiscoveryv2.APIVersionDiscovery) int {
			return ranks.compareVersions(g.Name, a.Version, b.Version)
		})
	}
	slices.SortStableFunc(l.Items, func(a, b apidiscoveryv2.APIGroupDiscovery) int { return ranks.compare(a.Name, b.Name) })
}

// ranks order groups and versions by the priorities of their APIServices.
type ranks struct {
	groups   map[string]int32
	versions map[schema.GroupVersion]int32
}

func ranksOf(remote []Remote) ranks {
	out := ranks{groups: map[string]int32{}, versions: map[schema.GroupVersion]int32{}}
	for _, r := range remote {
		out.groups[r.Group] = max(out.groups[r.Group], r.GroupPriority)
		out.versions[r.GroupVersion] = r.VersionPriority
	}
	return out
}

// compare orders groups by the highest priority of their APIServices.
func (r ranks) compare(a, b string) int {
	of := func(group string) int32 {
		here, _ := apiregistration.Priorities(schema.GroupVersion{Group: group})
		return max(r.groups[group], here)
	}
	return cmp.Or(cmp.Compare(of(b), of(a)), cmp.Compare(a, b))
}

func (r ranks) compareVersions(group, a, b string) int {
	of := func(v string) int32 {
		gv := schema.GroupVersion{Group: group, Version: v}
		if p, remote := r.versions[gv]; remote {
			return p
		}
		_, p := apiregistration.Priorities(gv)
		return p
	}
	return cmp.Or(cmp.Compare(of(b), of(a)), -version.CompareKubeAwareVersionStrings(a, b))
}

func (r ranks) sortVersions(g *metav1.APIGroup) {
	slices.SortStableFunc(g.Versions,
		func(a, b metav1.GroupVersionForDiscovery) int { return r.compareVersions(g.Name, a.Version, b.Version) })
	g.PreferredVersion = g.Versions[0]
}
