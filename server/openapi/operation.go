package openapi

import (
	"slices"
	"strings"
)

// resource returns the routes of a resource without its subresources.
func (b *builder) resource(r Resource) ([]route, error) {
	p := b.place(r, Sub{})
	var out []route
	for _, routesOf := range []func(place) ([]route, error){b.lists, b.watches, b.deleteCollection, b.delete} {
		routes, err := routesOf(p)
		if err != nil {
			return nil, err
		}
		out = append(out, routes...)
	}
	routes, err := b.writes(p, Sub{Verbs: r.Verbs})
	return append(out, routes...), err
}

// subresource returns the routes of one subresource.
func (b *builder) subresource(r Resource, s Sub) ([]route, error) {
	p := b.place(r, s)
	switch {
	case strings.HasSuffix(s.Kind, "Options"):
		return b.connect(p, s)
	case s.Name == "log":
		return b.log(p)
	}
	return b.writes(p, s)
}

// writes returns read, create, replace and patch, which objects and subresources have in common.
func (b *builder) writes(p place, s Sub) ([]route, error) {
	var out []route
	add := func(method, verb, action, option string, edit func(*route)) error {
		params, path := p.itemParams, p.item
		if action == "post" && s.Name == "" {
			params, path = p.params, p.collection
		}
		var options []string
		if option != "" {
			options = append(options, option)
		}
		r, err := b.route(p, operationSpec{method, verb, action, params, options})
		if err != nil {
			return err
		}
		r.path, r.body, r.bodyRequired = path, p.def, true
		edit(&r)
		out = append(out, r)
		return nil
	}
	steps := []struct {
		verb, method, word, action, option string
		edit                               func(*route)
	}{
		{"get", "get", "read", "get", "", func(r *route) {
			r.description, r.body, r.bodyRequired = "read "+phrase(s, "the specified", p.r.Kind), "", false
			r.results = results(p.def, "200")
		}},
		{"create", "post", "create", "post", "CreateOptions", func(r *route) {
			r.description = "create " + phrase(s, "", withArticle(p.r.Kind))
			r.results = results(p.def, "200", "201", "202")
		}},
		{"update", "put", "replace", "put", "UpdateOptions", func(r *route) {
			r.description = "replace " + phrase(s, "the specified", p.r.Kind)
			r.results = results(p.def, "200", "201")
		}},
		{"patch", "patch", "patch", "patch", "PatchOptions", func(r *route) {
			r.description, r.body = "partially update "+phrase(s, "the specified", p.r.Kind), metaV1+"Patch"
			r.consumes, r.results = b.media.patches, results(p.def, "200", "201")
		}},
	}
	for _, step := range steps {
		if !hasVerb(s.Verbs, step.verb) {
			continue
		}
		if err := add(step.method, step.word, step.action, step.option, step.edit); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lists returns the list of a collection, and for a namespaced resource that of all namespaces.
func (b *builder) lists(p place) ([]route, error) {
	if !hasVerb(p.r.Verbs, "list") {
		return nil, nil
	}
	list := func(p place, path string, params []param) (route, error) {
		r, err := b.route(p, operationSpec{"get", "list", "list", params, []string{"ListOptions"}})
		r.path, r.produces, r.results = path, b.media.streams, results(p.def+"List", "200")
		r.description = "list objects of kind " + p.r.Kind
		if hasVerb(p.r.Verbs, "watch") {
			r.description = "list or watch objects of kind " + p.r.Kind
		}
		return r, err
	}
	one, err := list(p, p.collection, p.params)
	if err != nil || !p.r.Namespaced {
		return []route{one}, err
	}
	p.object = p.r.Kind + "ForAllNamespaces"
	all, err := list(p, base(p.r.Group, p.r.Version)+"/"+p.r.Plural, nil)
	return []route{one, all}, err
}

// watches returns the old watch paths, which are deprecated and still served.
func (b *builder) watches(p place) ([]route, error) {
	if !hasVerb(p.r.Verbs, "watch") {
		return nil, nil
	}
	root := base(p.r.Group, p.r.Version)
	watch := func(path, object, action, description string, params []param) (route, error) {
		p := p
		p.object = object
		r, err := b.route(p, operationSpec{"get", "watch", action, params, []string{"ListOptions"}})
		r.path = strings.Replace(path, root, root+"/watch", 1)
		r.description, r.produces = description, b.media.streams
		r.results = results(metaV1+"WatchEvent", "200")
		return r, err
	}
	single := "watch changes to an object of kind " + p.r.Kind + ". deprecated: use the 'watch' parameter with a list " +
		"operation instead, filtered to a single item with the 'fieldSelector' parameter."
	many := "watch individual changes to a list of " + p.r.Kind + ". deprecated: use the 'watch' parameter with a list operation instead."
	item, err := watch(p.item, p.object, "watch", single, p.itemParams)
	if err != nil {
		return nil, err
	}
	list, err := watch(p.collection, p.object+"List", "watchlist", many, p.params)
	if err != nil || !p.r.Namespaced {
		return []route{item, list}, err
	}
	all, err := watch(root+"/"+p.r.Plural, p.r.Kind+"ListForAllNamespaces", "watchlist", many, nil)
	return []route{item, list, all}, err
}

func (b *builder) delete(p place) ([]route, error) {
	if !hasVerb(p.r.Verbs, "delete") {
		return nil, nil
	}
	r, err := b.route(p, operationSpec{"delete", "delete", "delete", p.itemParams, []string{"DeleteOptions"}})
	r.path, r.description, r.body = p.item, "delete "+withArticle(p.r.Kind), metaV1+"DeleteOptions"
	r.results = results(metaV1+"Status", "200", "202")
	if p.r.DeleteReturnsObject {
		r.results = results(p.def, "200", "202")
	}
	return []route{r}, err
}

func (b *builder) deleteCollection(p place) ([]route, error) {
	if !hasVerb(p.r.Verbs, "deletecollection") {
		return nil, nil
	}
	p.object = "Collection" + p.object
	r, err := b.route(p, operationSpec{"delete", "delete", "deletecollection", p.params, []string{"DeleteOptions", "ListOptions"}})
	r.params = slices.DeleteFunc(r.params, func(p param) bool { return p.name == "watch" || p.name == "allowWatchBookmarks" })
	r.path, r.description, r.body = p.collection, "delete collection of "+p.r.Kind, metaV1+"DeleteOptions"
	r.results = results(metaV1+"Status", "200")
	return []route{r}, err
}

func (b *builder) log(p place) ([]route, error) {
	r, err := b.route(p, operationSpec{"get", "read", "get", p.itemParams, nil})
	if err != nil {
		return nil, err
	}
	options, err := b.defs.params(definition("", "v1", "PodLogOptions"))
	r.params = append(r.params, options...)
	sortParams(r.params)
	r.path, r.description = p.item, "read log of the specified "+p.r.Kind
	r.produces, r.results = append([]string{"text/plain"}, b.media.objects...), results("", "200")
	return []route{r}, err
}

// connect returns the routes of a connection: one for each method, and for a proxy, which is the only connection that
// allows delete, all of them again with a path behind it.
func (b *builder) connect(p place, s Sub) ([]route, error) {
	options, err := b.defs.params(p.def)
	if err != nil {
		return nil, err
	}
	methods := []string{"get", "post"}
	proxy := hasVerb(s.Verbs, "delete")
	if proxy {
		methods = []string{"get", "put", "post", "patch", "delete", "options", "head"}
	}
	var out []route
	add := func(path, suffix string, params []param) {
		sortParams(params)
		for _, m := range methods {
			out = append(out, route{
				path: path, method: m, action: "connect", kind: &p.kind, tag: tag(p.r.Group, p.r.Version),
				id:          operationID(p.r.Group, p.r.Version, "connect", camel(m, true)+p.object+suffix),
				description: "connect " + strings.ToUpper(m) + " requests to " + s.Name + " of " + p.r.Kind,
				params:      params, consumes: anyMedia, produces: anyMedia, results: results("", "200"),
			})
		}
	}
	add(p.item, "", slices.Concat(p.itemParams, options))
	if proxy {
		add(p.item+"/{path}", "WithPath", slices.Concat(p.itemParams, options, []param{{"path", "path", "string", "path to the resource"}}))
	}
	return out, nil
}
