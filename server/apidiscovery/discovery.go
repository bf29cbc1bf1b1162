// Package apidiscovery makes the discovery documents of the API: the legacy ones, one for each group version, and the
// aggregated one. Documents are pure functions of the table of descriptors.
package apidiscovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"proa.dev/kinds/kind"
)

// groupOrder is the order in which clients look for a resource whose group they do not name.
func groupOrder() []string {
	return []string{"", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
		"autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
		"discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io"}
}

// group is one API group with its versions, the preferred one first.
type group struct {
	name     string
	versions []string
	defs     map[string][]*kind.Def
}

// groups sorts descriptors into groups.
func groups(defs []*kind.Def) []*group {
	byName := map[string]*group{}
	var all []*group
	for _, d := range defs {
		g := byName[d.Group]
		if g == nil {
			g = &group{name: d.Group, defs: map[string][]*kind.Def{}}
			byName[d.Group] = g
			all = append(all, g)
		}
		if g.defs[d.Version] == nil {
			g.versions = append(g.versions, d.Version)
		}
		g.defs[d.Version] = append(g.defs[d.Version], d)
	}
	known := groupOrder()
	rank := func(g *group) int {
		if i := slices.Index(known, g.name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortStableFunc(all, func(a, b *group) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name)) })
	for _, g := range all {
		slices.SortFunc(g.versions, func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) })
		for _, list := range g.defs {
			slices.SortFunc(list, func(a, b *kind.Def) int { return cmp.Compare(a.Plural, b.Plural) })
		}
	}
	return all
}

// Versions returns the document at /api.
func Versions(address string) *metav1.APIVersions {
	return &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}
}

// Groups returns the document at /apis.
func Groups(defs []*kind.Def) *metav1.APIGroupList {
	l := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, g := range groups(defs) {
		if g.name != "" {
			l.Groups = append(l.Groups, g.legacy())
		}
	}
	return l
}

// Group returns the document at /apis/NAME; nil when there is no such group.
func Group(defs []*kind.Def, name string) *metav1.APIGroup {
	for _, g := range groups(defs) {
		if g.name == name && name != "" {
			out := g.legacy()
			out.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return &out
		}
	}
	return nil
}

func (g *group) legacy() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v, Version: v})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

// Resources returns the document of one group version; nil when it is not served.
func Resources(defs []*kind.Def, gv schema.GroupVersion) *metav1.APIResourceList {
	l := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv.String(),
		APIResources: []metav1.APIResource{}}
	if gv.Group != "" {
		l.APIVersion = "v1"
	}
	for _, g := range groups(defs) {
		if g.name != gv.Group {
			continue
		}
		for _, d := range g.defs[gv.Version] {
			r := metav1.APIResource{
				Name: d.Plural, SingularName: d.Singular, Namespaced: d.Scope == kind.Namespaced, Kind: d.Kind,
				Verbs: verbs(d), ShortNames: d.Short, Categories: d.Categories, StorageVersionHash: storageHash(d),
			}
			l.APIResources = append(l.APIResources, r)
			for _, s := range sorted(d.Subs) {
				sub := metav1.APIResource{Name: d.Plural + "/" + s.Name, Namespaced: d.Scope == kind.Namespaced, Kind: d.Kind,
					Verbs: s.Verbs}
				if s.Body != nil {
					sub.Kind = s.Body.Kind
					if s.Body.GroupVersion() != d.GroupVersion() {
						sub.Group, sub.Version = s.Body.Group, s.Body.Version
					}
				}
				l.APIResources = append(l.APIResources, sub)
			}
		}
	}
	if len(l.APIResources) == 0 {
		return nil
	}
	slices.SortStableFunc(l.APIResources, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
	return l
}

func sorted(subs []*kind.SubDef) []*kind.SubDef {
	return slices.SortedFunc(slices.Values(subs), func(a, b *kind.SubDef) int { return cmp.Compare(a.Name, b.Name) })
}

// storageHash returns a hash of the storage version, so that clients notice when it changes.
func storageHash(d *kind.Def) string {
	if d.Transient || d.Computed != nil || !d.Serves("get") {
		return ""
	}
	sum := sha256.Sum256([]byte(d.Storage().Group + "/" + d.Storage().StorageVersion + "/" + d.Storage().Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// Aggregated returns the whole API in one document: the core group for /api, the others for /apis.
func Aggregated(defs []*kind.Def, core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	l := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, g := range groups(defs) {
		if (g.name == "") != core {
			continue
		}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, v := range g.versions {
			item.Versions = append(item.Versions, versionOf(g.defs[v], v))
		}
		l.Items = append(l.Items, item)
	}
	return l
}

func versionOf(defs []*kind.Def, v string) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: v, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, d := range defs {
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: d.Plural, SingularResource: d.Singular, ShortNames: d.Short, Categories: d.Categories, Verbs: verbs(d),
			ResponseKind: responseKind(d), Scope: apidiscoveryv2.ScopeNamespace,
		}
		if d.Scope == kind.Cluster {
			r.Scope = apidiscoveryv2.ScopeCluster
		}
		for _, s := range sorted(d.Subs) {
			sub := apidiscoveryv2.APISubresourceDiscovery{Subresource: s.Name, Verbs: s.Verbs, ResponseKind: responseKind(d)}
			if s.Body != nil {
				sub.ResponseKind = &metav1.GroupVersionKind{Kind: s.Body.Kind}
				if s.Body.GroupVersion() != d.GroupVersion() {
					sub.ResponseKind.Group, sub.ResponseKind.Version = s.Body.Group, s.Body.Version
				}
			}
			r.Subresources = append(r.Subresources, sub)
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// verbs returns the verbs in discovery: objects whose definition is being deleted can only be read and deleted.
func verbs(d *kind.Def) []string {
	if d.Terminating {
		return []string{"delete", "deletecollection", "get", "list", "watch"}
	}
	return d.Verbs
}

// responseKind returns the kind of a resource in the aggregated document. Group and version of a built-in one are left
// out, because they are those of the enclosing entry; those of a custom one are included, as upstream does.
func responseKind(d *kind.Def) *metav1.GroupVersionKind {
	out := &metav1.GroupVersionKind{Kind: d.Kind}
	if d.JSONOnly {
		out.Group, out.Version = d.Group, d.Version
	}
	return out
}
