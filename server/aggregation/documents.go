package aggregation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// documents are a server's documents about its group version. They are immutable.
type documents struct {
	resources []apidiscoveryv2.APIResourceDiscovery
	// etag is the ETag of the document that the resources are from.
	etag string
	// openAPI changes when the OpenAPI v3 document of the group version does; empty when the server has none.
	openAPI string
}

const (
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	acceptJSON       = "application/json"
)

// fetch fetches the documents of a server. former is the previous result, or nil.
func (a *Aggregator) fetch(ctx context.Context, b *backend, former *documents) (*documents, error) {
	out, err := a.fetchResources(ctx, b, former)
	if err != nil {
		return nil, err
	}
	// Without an OpenAPI document the server works all the same.
	if out.openAPI, err = a.fetchOpenAPITag(ctx, b); err != nil {
		a.Log.DebugContext(ctx, "an aggregated API server has no OpenAPI v3 documents", "apiservice", b.name, "err", err)
	}
	return out, nil
}

// fetchResources fetches the aggregated discovery document, and when the server does not have it the one of the group
// version.
func (a *Aggregator) fetchResources(ctx context.Context, b *backend, former *documents) (*documents, error) {
	etag := ""
	if former != nil {
		etag = former.etag
	}
	got, err := a.fetchOne(ctx, b, "/apis", acceptAggregated, etag, maxDiscovery)
	if err != nil {
		return nil, err
	}
	switch {
	case got.code == http.StatusNotModified && etag != "":
		return &documents{resources: former.resources, etag: etag}, nil
	case got.code == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("read /apis: status %d", got.code)
	case got.code == http.StatusOK && got.params["as"] == "APIGroupDiscoveryList" && got.params["v"] == "v2":
		resources, err := resourcesOf(got.body, b.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("read /apis: %w", err)
		}
		return &documents{resources: resources, etag: got.etag}, nil
	}
	if got, err = a.fetchOne(ctx, b, b.base(), acceptJSON, "", maxDiscovery); err != nil {
		return nil, err
	}
	if got.code != http.StatusOK {
		return nil, fmt.Errorf("read %s: status %d", b.base(), got.code)
	}
	var legacy metav1.APIResourceList
	if err := json.Unmarshal(got.body, &legacy); err != nil {
		return nil, fmt.Errorf("read %s: %w", b.base(), err)
	}
	return &documents{resources: sanitize(fromLegacy(legacy.APIResources))}, nil
}

// resourcesOf returns the resources of one group version in an aggregated document. Other groups are ignored.
func resourcesOf(body []byte, gv schema.GroupVersion) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	var all apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	for _, g := range all.Items {
		for _, v := range g.Versions {
			if g.Name == gv.Group && v.Version == gv.Version {
				return sanitize(v.Resources), nil
			}
		}
	}
	return nil, nil
}

// maxResources and maxName limit what one group version may add to the discovery document that every client reads.
const (
	maxResources = 1000
	maxName      = 253
)

// sanitize drops resources with invalid names, and sets fields that clients need.
func sanitize(in []apidiscoveryv2.APIResourceDiscovery) (out []apidiscoveryv2.APIResourceDiscovery) {
	for _, r := range in {
		if len(out) == maxResources {
			break
		}
		if !isName(r.Resource) {
			continue
		}
		r.Subresources = slices.DeleteFunc(slices.Clone(r.Subresources),
			func(s apidiscoveryv2.APISubresourceDiscovery) bool { return !isName(s.Subresource) })
		r.ShortNames = slices.DeleteFunc(slices.Clone(r.ShortNames), func(s string) bool { return !isName(s) })
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{} // clients of some versions expect one
		}
		for i := range r.Subresources {
			if r.Subresources[i].ResponseKind == nil {
				r.Subresources[i].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
		out = append(out, r)
	}
	return out
}

func isName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == '/' || c == 0x7f })
}

// fromLegacy converts the legacy form, in which a subresource is a resource with a slash in its name, to aggregated
// discovery.
func fromLegacy(list []metav1.APIResource) (out []apidiscoveryv2.APIResourceDiscovery) {
	at := map[string]int{}
	byDepth := slices.Clone(list)
	slices.SortStableFunc(byDepth, func(a, b metav1.APIResource) int {
		return cmp.Compare(strings.Count(a.Name, "/"), strings.Count(b.Name, "/"))
	})
	for _, r := range byDepth {
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		kind := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		name, sub, isSub := strings.Cut(r.Name, "/")
		if !isSub {
			at[name] = len(out)
			out = append(out, apidiscoveryv2.APIResourceDiscovery{
				Resource: name, SingularResource: r.SingularName, Scope: scope, ResponseKind: kind,
				Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
			})
			continue
		}
		i, known := at[name]
		if !known { // a subresource alone still needs its resource
			i = len(out)
			at[name] = i
			out = append(out, apidiscoveryv2.APIResourceDiscovery{Resource: name, Scope: scope})
		}
		out[i].Subresources = append(out[i].Subresources,
			apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
	}
	return out
}

// fetchOpenAPITag returns the hash of the OpenAPI v3 document of the group version from the server's index. The path in
// the index is ignored: it is the same for every server.
func (a *Aggregator) fetchOpenAPITag(ctx context.Context, b *backend) (string, error) {
	got, err := a.fetchOne(ctx, b, "/openapi/v3", acceptJSON, "", maxIndex)
	if err != nil {
		return "", err
	}
	if got.code != http.StatusOK {
		return "", fmt.Errorf("read /openapi/v3: status %d", got.code)
	}
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(got.body, &index); err != nil {
		return "", fmt.Errorf("read /openapi/v3: %w", err)
	}
	entry, there := index.Paths[strings.TrimPrefix(b.base(), "/")]
	if !there {
		return "", fmt.Errorf("the index has no document for %s", b.GroupVersion)
	}
	u, err := url.Parse(entry.URL)
	if err != nil {
		return "", fmt.Errorf("read /openapi/v3: %w", err)
	}
	return "hash=" + u.Query().Get("hash"), nil
}

// Description is the OpenAPI v3 document of a group version.
type Description struct {
	schema.GroupVersion
	// Tag changes when the document does.
	Tag string
	// Document fetches it, and DocumentV2 the v2 document of the whole server.
	Document, DocumentV2 func(ctx context.Context) ([]byte, error)
}

// Descriptions returns the OpenAPI v3 documents of the available aggregated servers.
func (a *Aggregator) Descriptions() (out []Description) {
	for gv, b := range *a.backends.Load() {
		d := b.documents()
		if d == nil || d.openAPI == "" || !b.available {
			continue
		}
		out = append(out, Description{GroupVersion: gv, Tag: b.name + " " + d.openAPI, Document: func(ctx context.Context) ([]byte, error) {
			return a.fetchOpenAPI(ctx, b, "/openapi/v3"+b.base(), "openapi")
		}, DocumentV2: func(ctx context.Context) ([]byte, error) {
			return a.fetchOpenAPI(ctx, b, "/openapi/v2", "swagger")
		}})
	}
	slices.SortFunc(out, func(a, b Description) int { return compareVersions(a.GroupVersion, b.GroupVersion) })
	return out
}

// fetchOpenAPI fetches a document. It must have the given key, which holds its version.
func (a *Aggregator) fetchOpenAPI(ctx context.Context, b *backend, path, key string) ([]byte, error) {
	got, err := a.fetchOne(ctx, b, path, acceptJSON, "", maxOpenAPI)
	if err != nil {
		return nil, err
	}
	if got.code != http.StatusOK {
		return nil, fmt.Errorf("read the OpenAPI document of %s: status %d", b.GroupVersion, got.code)
	}
	var document map[string]json.RawMessage
	if err := json.Unmarshal(got.body, &document); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document of %s: %w", b.GroupVersion, err)
	}
	if document[key] == nil {
		return nil, errors.New("the server has answered with something else than an OpenAPI document")
	}
	return got.body, nil
}
