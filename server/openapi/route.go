package openapi

import (
	"cmp"
	"slices"
	"strings"
)

// route is one operation, described once for both versions of OpenAPI.
type route struct {
	path, method    string
	id, description string
	tag             string
	action          string
	kind            *kind
	params          []param
	body            string // definition name, or empty
	bodyRequired    bool
	consumes        []string
	produces        []string
	results         map[string]string // definition by status code; an empty name is a plain string
}

type kind struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
}

// param is one query or path parameter.
type param struct {
	name, in, typ, description string
}

// media holds the media types of ordinary requests.
type media struct {
	objects, streams, patches []string
}

func newMedia(cbor bool) media {
	m := media{
		objects: []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"},
		patches: []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"},
	}
	streams := []string{"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"}
	apply := []string{"application/apply-patch+yaml"}
	if cbor {
		m.objects = append(m.objects, "application/cbor")
		streams = append(streams, "application/cbor-seq")
		apply = append(apply, "application/apply-patch+cbor")
	}
	m.streams = slices.Concat(m.objects, streams)
	m.patches = append(m.patches, apply...)
	return m
}

// builder makes the routes of resources.
type builder struct {
	defs  *definitions
	media media
}

var anyMedia = []string{"*/*"}

// base returns the path of a group version, without a trailing slash.
func base(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// groupVersion returns all routes of one group version.
func (b *builder) groupVersion(group, version string, resources []Resource) ([]route, error) {
	routes := []route{{
		path: base(group, version) + "/", method: "get", tag: tag(group, version),
		id:          operationID(group, version, "get", "APIResources"),
		description: "get available resources",
		consumes:    b.media.objects, produces: b.media.objects,
		results: map[string]string{"200": metaV1 + "APIResourceList"},
	}}
	for _, r := range resources {
		if r.Group != group || r.Version != version {
			continue
		}
		more, err := b.resource(r)
		if err != nil {
			return nil, err
		}
		routes = append(routes, more...)
		for _, s := range r.Subresources {
			more, err := b.subresource(r, s)
			if err != nil {
				return nil, err
			}
			routes = append(routes, more...)
		}
	}
	return routes, nil
}

// place is the path of the operations of a resource or subresource, and the name of the object in their operation IDs.
type place struct {
	r          Resource
	collection string // path of the collection
	item       string // path of one object, with the subresource
	object     string // as in operation IDs: NamespacedPodStatus
	kind       kind   // of the body
	def        string // definition of the body
	params     []param
	itemParams []param
}

func (b *builder) place(r Resource, s Sub) place {
	p := place{r: r, kind: kind{r.Group, r.Kind, r.Version}, object: r.Kind + camel(s.Name, true)}
	if s.Kind != "" {
		p.kind.Kind = s.Kind
		if s.Group != "" || s.Version != "" {
			p.kind.Group, p.kind.Version = s.Group, s.Version
		}
	}
	p.def = definition(p.kind.Group, p.kind.Version, p.kind.Kind)
	p.collection = base(r.Group, r.Version) + "/" + r.Plural
	if r.Namespaced {
		p.object = "Namespaced" + p.object
		p.collection = base(r.Group, r.Version) + "/namespaces/{namespace}/" + r.Plural
		p.params = append(p.params, namespaceParam)
	}
	p.item = p.collection + "/{name}"
	if s.Name != "" {
		p.item += "/" + s.Name
	}
	p.itemParams = append(slices.Clone(p.params), param{"name", "path", "string", "name of the " + p.kind.Kind})
	return p
}

var namespaceParam = param{"namespace", "path", "string", "object name and auth scope, such as for teams and projects"}

var pretty = param{"pretty", "query", "string", "If 'true', then the output is pretty printed. Defaults to 'false' unless " +
	"the user-agent indicates a browser or command-line HTTP tool (curl and wget)."}

// operationSpec describes an operation at a place.
type operationSpec struct {
	method string // of HTTP
	verb   string // in the operation ID
	action string // x-kubernetes-action
	params []param
	// options are the types of meta/v1 whose fields are query parameters.
	options []string
}

// route returns an ordinary operation.
func (b *builder) route(p place, o operationSpec) (route, error) {
	r := route{
		method: o.method, action: o.action, tag: tag(p.r.Group, p.r.Version), kind: &p.kind,
		id:       operationID(p.r.Group, p.r.Version, o.verb, p.object),
		params:   append(slices.Clone(o.params), pretty),
		consumes: anyMedia, produces: b.media.objects,
	}
	for _, name := range o.options {
		more, err := b.defs.params(metaV1 + name)
		if err != nil {
			return route{}, err
		}
		for _, m := range more {
			if !slices.ContainsFunc(r.params, func(have param) bool { return have.name == m.name }) {
				r.params = append(r.params, m)
			}
		}
	}
	sortParams(r.params)
	return r, nil
}

func sortParams(params []param) {
	slices.SortFunc(params, func(a, b param) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.in, b.in)) })
}

// results maps each status code to the definition of its response.
func results(def string, codes ...string) map[string]string {
	m := map[string]string{}
	for _, c := range codes {
		m[c] = def
	}
	return m
}

func hasVerb(verbs []string, verb string) bool { return slices.Contains(verbs, verb) }

// phrase returns "status of the specified Pod" for a subresource and "the specified Pod" for the object itself.
func phrase(s Sub, before, kind string) string {
	if s.Name == "" {
		return strings.TrimSpace(before + " " + kind)
	}
	return s.Name + " of " + strings.TrimSpace(before+" "+kind)
}
