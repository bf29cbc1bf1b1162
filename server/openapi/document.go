package openapi

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Service puts documents together and serves them. It is safe for concurrent use.
type Service struct {
	options Options
	media   media
	seed    func() []byte
	kept    kept
}

// New returns a service. It does no work until it is asked for a document.
func New(o Options) *Service {
	s := &Service{options: o, media: newMedia(o.CBOR), kept: kept{docs: map[string]*doc{}}}
	s.seed = sync.OnceValue(s.digest)
	return s
}

// groups returns the groups beside the built-in ones.
func (s *Service) groups() []Group {
	if s.options.Groups == nil {
		return nil
	}
	return s.options.Groups()
}

// root returns the routes of the documents that belong to no group version, by their name in the index.
func (s *Service) root(groups []Group) map[string][]route {
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
	for _, g := range groups {
		if g.Document == nil && docs["apis/"+g.Group] == nil {
			group(g.Group)
		}
	}
	for _, routes := range docs {
		routes[0].method = "get"
	}
	return docs
}

// groupVersion is one group version with all that its document is made of.
type groupVersion struct {
	group, version string
	resources      []Resource
	extra          *Group // nil for a built-in group version
}

// groupVersions returns all group versions by their name in the index. Where a custom resource lives in
// the group version of a built-in one, the built-in one wins.
func (s *Service) groupVersions(groups []Group) map[string]groupVersion {
	all := map[string]groupVersion{}
	for _, r := range s.options.Resources {
		name := base(r.Group, r.Version)[1:]
		gv := all[name]
		gv.group, gv.version, gv.resources = r.Group, r.Version, append(gv.resources, r)
		all[name] = gv
	}
	for i, g := range groups {
		if name := base(g.Group, g.Version)[1:]; all[name].resources == nil {
			all[name] = groupVersion{group: g.Group, version: g.Version, resources: g.Resources, extra: &groups[i]}
		}
	}
	return all
}

// v3JSON puts one document together.
func (s *Service) v3JSON(name string) ([]byte, error) {
	groups := s.groups()
	if gv, ok := s.groupVersions(groups)[name]; ok {
		if gv.extra != nil && gv.extra.Document != nil {
			return gv.extra.Document()
		}
		defs := newDefinitions(nil)
		if gv.extra != nil {
			defs.extra = gv.extra.Schemas
		}
		b := &builder{defs: defs, media: s.media}
		routes, err := b.groupVersion(gv.group, gv.version, gv.resources)
		if err != nil {
			return nil, err
		}
		return document{gv.group, gv.version, routes}.v3(defs, s.options.Version)
	}
	routes, ok := s.root(groups)[name]
	if !ok {
		return nil, fmt.Errorf("openapi: no document %q", name)
	}
	return document{routes: routes}.v3(newDefinitions(nil), s.options.Version)
}

// v2JSON puts the one document of version 2 together.
func (s *Service) v2JSON() ([]byte, error) {
	groups := s.groups()
	defs := newDefinitions(nil)
	b := &builder{defs: defs, media: s.media}
	var routes []route
	for _, gv := range s.groupVersions(groups) {
		if gv.extra != nil && gv.extra.Document != nil {
			continue
		}
		if gv.extra != nil {
			if defs.extra == nil {
				defs.extra = maps.Clone(gv.extra.Schemas)
			} else {
				maps.Copy(defs.extra, gv.extra.Schemas)
			}
		}
		more, err := b.groupVersion(gv.group, gv.version, gv.resources)
		if err != nil {
			return nil, err
		}
		routes = append(routes, more...)
	}
	roots := s.root(groups)
	for _, name := range slices.Sorted(maps.Keys(roots)) {
		routes = append(routes, roots[name]...)
	}
	return v2(defs, routes, s.options.Version)
}
