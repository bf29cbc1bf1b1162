package apireader

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aggregated are the media types of discovery in one document; Kubernetes before 1.30 has only the second.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

// Resource is a resource that the server has, in the version that it prefers.
type Resource struct {
	Group, Version, Plural, Kind string
	Singular                     string
	ShortNames                   []string
	Namespaced                   bool
	Verbs                        []string
}

// GroupResource names the resource.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// discoveryList is an APIGroupDiscoveryList as far as it is needed.
type discoveryList struct {
	Kind  string `json:"kind"`
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Versions []struct {
			Version   string `json:"version"`
			Resources []struct {
				Resource     string `json:"resource"`
				Scope        string `json:"scope"`
				Singular     string `json:"singularResource"`
				ResponseKind struct {
					Kind string `json:"kind"`
				} `json:"responseKind"`
				ShortNames []string `json:"shortNames"`
				Verbs      []string `json:"verbs"`
			} `json:"resources"`
		} `json:"versions"`
	} `json:"items"`
}

// Resources asks the server once what it has.
func (r *Reader) Resources(ctx context.Context) ([]Resource, error) {
	if r.resources != nil {
		return r.resources, nil
	}
	var out []Resource
	for _, path := range []string{"/api", "/apis"} {
		data, err := r.Raw(ctx, path, aggregated)
		if err != nil {
			return nil, err
		}
		var list discoveryList
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("read what the server has: %w", err)
		}
		if list.Kind == "APIVersions" || list.Kind == "APIGroupList" {
			return nil, fmt.Errorf("the server %s is too old: it does not list its resources in one document (Kubernetes 1.27 and later do)", r.printed)
		}
		out = append(out, list.resources()...)
	}
	r.resources = out
	return out, nil
}

// Discover returns what Resources returns, in the words of the API.
func (r *Reader) Discover(ctx context.Context) (out []metav1.APIResource, err error) {
	all, err := r.Resources(ctx)
	for i := range all {
		x := &all[i]
		out = append(out, metav1.APIResource{
			Group: x.Group, Version: x.Version, Name: x.Plural, Kind: x.Kind, SingularName: x.Singular, ShortNames: x.ShortNames,
			Namespaced: x.Namespaced, Verbs: x.Verbs,
		})
	}
	return out, err
}

func (l *discoveryList) resources() (out []Resource) {
	for _, g := range l.Items {
		seen := map[string]bool{}
		for _, v := range g.Versions { // the preferred one comes first
			for _, x := range v.Resources {
				if seen[x.Resource] || !slices.Contains(x.Verbs, "get") {
					continue
				}
				seen[x.Resource] = true
				out = append(out, Resource{
					Group: g.Metadata.Name, Version: v.Version, Plural: x.Resource, Kind: x.ResponseKind.Kind, Singular: x.Singular,
					ShortNames: x.ShortNames, Namespaced: x.Scope == "Namespaced", Verbs: x.Verbs,
				})
			}
		}
	}
	return out
}

// find returns the first resource of which a predicate is true, or nil.
func (r *Reader) find(ctx context.Context, is func(*Resource) bool) (*Resource, error) {
	all, err := r.Resources(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if is(&all[i]) {
			return &all[i], nil
		}
	}
	return nil, nil
}

// Resolve finds the resource that a user means by a word: a plural, a singular, a short name or a kind, with or without ".group" behind it.
// A short name counts only where no resource has the word as its name.
func (r *Reader) Resolve(ctx context.Context, word string) (*Resource, error) {
	word = strings.ToLower(word)
	name, group, qualified := strings.Cut(word, ".")
	inGroup := func(x *Resource) bool { return !qualified || x.Group == group }
	res, err := r.find(ctx, func(x *Resource) bool {
		return inGroup(x) && (name == x.Plural || name == x.Singular || name == strings.ToLower(x.Kind))
	})
	if err == nil && res == nil {
		res, err = r.find(ctx, func(x *Resource) bool { return inGroup(x) && slices.Contains(x.ShortNames, name) })
	}
	if err == nil && res == nil {
		err = fmt.Errorf("the server has no resource %q; kubectl api-resources lists those that it has", word)
	}
	return res, err
}
