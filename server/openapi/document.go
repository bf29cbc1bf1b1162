package openapi

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"proa.dev/server/openapi/openapiproto"
)

// Service builds documents and serves them. It is safe for concurrent use.
type Service struct {
	options Options
	media   media
	seed    func() []byte
	builtIn func() map[string]string // ETags of the documents without custom resources and aggregated servers
	cache   documentCache
	// makingV2 and makingV3 are held while a document is built: one at a time, because large ones take time and memory.
	makingV2, makingV3 sync.Mutex
}

// New returns a service. It does no work until a document is requested.
func New(o Options) *Service {
	s := &Service{options: o, media: newMedia(o.CBOR), cache: documentCache{limit: cacheBytes, docs: map[string]*doc{}}}
	s.seed = sync.OnceValue(s.digest)
	s.builtIn = sync.OnceValue(s.builtInTags)
	return s
}

// groups returns the groups that are not built in.
func (s *Service) groups() []Group {
	if s.options.Groups == nil {
		return nil
	}
	return s.options.Groups()
}

// root returns the routes of the documents that belong to no group version, by their name in the index.
func (s *Service) root() map[string][]route {
	m := s.media.objects
	docs := map[string][]route{
		"api": {{path: "/api/", tag: "core", id: "getCoreAPIVersions", description: "get available API versions",
			consumes: m, produces: m, results: results(metaV1+"APIVersions", "200")}},
		"apis": {{path: "/apis/", tag: "apis", id: "getAPIVersions", description: "get available API versions",
			consumes: m, produces: m, results: results(metaV1+"APIGroupList", "200")}},
		"version": {{path: "/version/", tag: "version", id: "getCodeVersion", description: "get the version information for this server",
			consumes: []string{"application/json"}, produces: []string{"application/json"},
			results: results("io.k8s.apimachinery.pkg.version.Info", "200")}},
		".well-known/openid-configuration": {{path: "/.well-known/openid-configuration/", tag: "WellKnown",
			id:          "getServiceAccountIssuerOpenIDConfiguration",
			description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
			produces:    []string{"application/json"}, results: results("", "200")}},
		"openid/v1/jwks": {{path: "/openid/v1/jwks/", tag: "openid", id: "getServiceAccountIssuerOpenIDKeyset",
			description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
			produces:    []string{"application/jwk-set+json"}, results: results("", "200")}},
	}
	group := func(name string) {
		docs["apis/"+name] = []route{{path: "/apis/" + name + "/", tag: tag(name, ""), id: operationID(name, "", "get", "APIGroup"),
			description: "get information of a group", consumes: m, produces: m, results: results(metaV1+"APIGroup", "200")}}
	}
	for _, r := range s.options.Resources {
		if r.Group != "" && docs["apis/"+r.Group] == nil {
			group(r.Group)
		}
	}
	for _, routes := range docs {
		routes[0].method = "get"
	}
	return docs
}

// groupVersion is a group version with what its document is made of.
type groupVersion struct {
	group, version string
	resources      []Resource             // the built-in ones
	custom         func() []Custom        // nil if it has no custom resources
	document       func() ([]byte, error) // the document of an aggregated server; nil if this server describes the group version
	tag            string                 // changes with what is not built in; empty if everything is
}

// groupVersions returns all group versions by their name in the index. A group version can have built-in resources and
// custom ones. The document of an aggregated server, which serves all requests for its group version, replaces the one
// of this server.
func (s *Service) groupVersions(groups []Group) map[string]groupVersion {
	all := make(map[string]groupVersion, len(groups))
	for _, r := range s.options.Resources {
		name := base(r.Group, r.Version)[1:]
		gv := all[name]
		gv.group, gv.version, gv.resources = r.Group, r.Version, append(gv.resources, r)
		all[name] = gv
	}
	for _, g := range groups {
		name := base(g.Group, g.Version)[1:]
		gv := all[name]
		if gv.document != nil {
			continue
		}
		gv.group, gv.version, gv.tag = g.Group, g.Version, "tag "+g.Tag
		if gv.custom, gv.document = g.Custom, g.Document; g.Document != nil {
			gv.resources, gv.custom = nil, nil
		}
		all[name] = gv
	}
	return all
}

// customs returns the custom resources of a group version, except those whose name a built-in resource has: requests
// for that name go to the built-in one.
func (s *Service) customs(gv groupVersion) []Custom {
	if gv.custom == nil {
		return nil
	}
	return slices.DeleteFunc(gv.custom(), func(c Custom) bool {
		return slices.ContainsFunc(s.options.Resources, func(r Resource) bool { return r.Group == c.Group && r.Plural == c.Plural })
	})
}

// writeV3 builds one v3 document.
func (s *Service) writeV3(name string, out io.Writer, encode openapiproto.Encoder) error {
	gv, ok := s.groupVersions(s.groups())[name]
	if ok && gv.document != nil {
		return writeWhole(gv.document, out, encode)
	}
	s.makingV3.Lock()
	defer s.makingV3.Unlock()
	b := &builder{defs: newDefinitions(), media: s.media}
	d := document{group: gv.group, version: gv.version, info: object{"title": "Kubernetes", "version": s.options.Version}}
	switch {
	case ok && gv.resources != nil:
		var err error
		if d.routes, err = b.groupVersion(gv.group, gv.version, gv.resources); err != nil {
			return err
		}
		d.customs = s.customs(gv)
	case ok:
		d.info, d.customs = object{"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}, s.customs(gv)
	default:
		if d.routes, ok = s.root()[name]; !ok {
			return fmt.Errorf("openapi: no document %q", name)
		}
	}
	return d.write(b, newWriter(out, encode))
}

// writeWhole writes a document that an aggregated server has made.
func writeWhole(document func() ([]byte, error), out io.Writer, encode openapiproto.Encoder) error {
	raw, err := document()
	if err == nil && encode != nil {
		raw, err = openapiproto.Encode(raw, encode)
	}
	if err == nil {
		_, err = out.Write(raw)
	}
	return err
}

// writeV2 builds the v2 document.
func (s *Service) writeV2(out io.Writer, encode openapiproto.Encoder) error {
	s.makingV2.Lock()
	defer s.makingV2.Unlock()
	b := &builder{defs: newDefinitions(), media: s.media}
	var routes []route
	var customs []Custom
	all := s.groupVersions(s.groups())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		gv := all[name]
		customs = append(customs, s.customs(gv)...)
		if gv.resources == nil {
			continue
		}
		more, err := b.groupVersion(gv.group, gv.version, gv.resources)
		if err != nil {
			return err
		}
		routes = append(routes, more...)
	}
	roots := s.root()
	for _, name := range slices.Sorted(maps.Keys(roots)) {
		routes = append(routes, roots[name]...)
	}
	return writeV2(b, newWriter(out, encode), contents{routes, customs, s.aggregatedParts()}, s.options.Version)
}

// aggregatedParts returns the parts of the v2 document that come from aggregated servers. A server without a document,
// or with a broken one, is left out.
func (s *Service) aggregatedParts() (out []*aggregatedPart) {
	for _, g := range s.groups() {
		if g.DocumentV2 == nil {
			continue
		}
		raw, err := g.DocumentV2()
		if err != nil {
			continue
		}
		if f, err := readAggregated(raw, g.Group, g.Version); err == nil {
			out = append(out, f)
		}
	}
	return out
}
