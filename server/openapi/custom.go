package openapi

import (
	"fmt"
	"slices"
	"strings"
)

// customDefinition returns the name of the schema of a custom kind: the reversed group, the version and the kind.
func customDefinition(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + version + "." + kind
}

// names is the set of definition names in a document. It keeps two definitions from getting the same name.
type names map[string]bool

// claim returns the name, or the name with a number if it is taken. Taken names occur because somebody can choose a
// group so that the schema of a custom kind has the name of a built-in one.
func (n names) claim(name string) string {
	free := name
	for i := 2; n[free]; i++ {
		free = fmt.Sprintf("%s_v%d", name, i)
	}
	n[free] = true
	return free
}

// customKind is a custom resource with the names that its schemas have in a document.
type customKind struct {
	Custom
	object, list string
}

// claimNames chooses the names of the schemas of custom resources.
func claimNames(customs []Custom, taken names) []customKind {
	out := make([]customKind, 0, len(customs))
	for _, c := range customs {
		out = append(out, customKind{
			Custom: c,
			object: taken.claim(customDefinition(c.Group, c.Version, c.Kind)),
			list:   taken.claim(customDefinition(c.Group, c.Version, c.ListKind)),
		})
	}
	return out
}

// write writes the schemas of the objects of a custom resource, and of its lists.
func (c customKind) write(w writer, d Dialect, path ...string) error {
	if err := w.part(c.Schema(d), append(path, c.object)...); err != nil {
		return err
	}
	return w.part(c.List(d, c.object), append(path, c.list)...)
}

// customBase returns the built-in definitions that every document with custom resources has.
func customBase(customs []Custom) map[string]bool {
	base := map[string]bool{}
	for _, name := range []string{"DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "Status"} {
		base[metaV1+name] = true
	}
	if slices.ContainsFunc(customs, func(c Custom) bool { return c.Scale }) {
		base[scaleDefinition] = true
	}
	return base
}

const scaleDefinition = "io.k8s.api.autoscaling.v1.Scale"

// customRoutes returns the operations of a custom resource. They are fewer than those of a built-in one, and list fewer
// media types, as in upstream's documents.
func (b *builder) customRoutes(c customKind) ([]route, error) {
	status := metaV1 + "Status"
	root := base(c.Group, c.Version) + "/"
	item := customPlace{kind: c, path: root + c.Plural, object: c.Kind}
	var steps []customOperation
	if c.Namespaced {
		all := customPlace{kind: c, path: item.path, object: c.Kind + "ForAllNamespaces"}
		steps = append(steps, customOperation{at: all, method: "get", verb: "list", options: "ListOptions", def: c.list,
			codes: []string{"200"}})
		item.path, item.object = root+"namespaces/{namespace}/"+c.Plural, "Namespaced"+c.Kind
	}
	many := item
	many.object = "Collection" + item.object
	steps = append(steps,
		customOperation{at: item, method: "get", verb: "list", options: "ListOptions", def: c.list, codes: []string{"200"}},
		customOperation{at: item, method: "post", verb: "create", options: "CreateOptions", body: c.object, def: c.object,
			codes: []string{"200", "201", "202"}},
		customOperation{at: many, method: "delete", action: "deletecollection", verb: "delete", options: "ListOptions", def: status,
			codes: []string{"200"}},
	)
	item.path += "/{name}"
	steps = append(steps, customWrites(item, c.object)...)
	steps = append(steps, customOperation{at: item, method: "delete", verb: "delete", options: "DeleteOptions",
		body: metaV1 + "DeleteOptions", bodyOptional: true, def: status, codes: []string{"200", "202"}})
	if c.Status {
		steps = append(steps, customWrites(item.sub("status"), c.object)...)
	}
	if c.Scale {
		steps = append(steps, customWrites(item.sub("scale"), scaleDefinition)...)
	}
	out := make([]route, 0, len(steps))
	for _, s := range steps {
		if c.Verbs != nil && !hasVerb(c.Verbs, s.discoveryVerb()) {
			continue
		}
		r, err := b.customRoute(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// customPlace is the path of some operations of a custom resource, and the name of the object in their operation IDs.
type customPlace struct {
	kind        customKind
	path        string
	object      string // as in operation IDs: NamespacedCronTabStatus
	subresource string
}

func (p customPlace) sub(name string) customPlace {
	p.path, p.object, p.subresource = p.path+"/"+name, p.object+camel(name, true), name
	return p
}

// customOperation describes one operation of a custom resource.
type customOperation struct {
	at           customPlace
	method, verb string
	action       string // empty: as the method, or list
	options      string // the type whose fields are the query parameters
	body         string // definition name, or empty
	bodyOptional bool
	def          string // definition of the response
	codes        []string
}

// customWrites returns read, replace and patch, which objects and subresources have in common.
func customWrites(at customPlace, def string) []customOperation {
	return []customOperation{
		{at: at, method: "get", verb: "read", options: "GetOptions", def: def, codes: []string{"200"}},
		{at: at, method: "put", verb: "replace", options: "UpdateOptions", body: def, def: def, codes: []string{"200", "201"}},
		{at: at, method: "patch", verb: "patch", options: "PatchOptions", body: metaV1 + "Patch", def: def, codes: []string{"200"}},
	}
}

func (b *builder) customRoute(s customOperation) (route, error) {
	c := s.at.kind
	text := []string{"application/json", "application/yaml"}
	r := route{
		path: s.at.path, method: s.method, tag: tag(c.Group, c.Version), kind: &kind{c.Group, c.Kind, c.Version},
		id: operationID(c.Group, c.Version, s.verb, s.at.object), description: s.describe(), action: s.method,
		body: s.body, bodyRequired: !s.bodyOptional, consumes: text, produces: text, results: results(s.def, s.codes...),
		params: []param{pretty},
	}
	switch {
	case s.action != "":
		r.action = s.action
	case s.verb == "list":
		r.action = "list"
	case s.verb == "patch":
		r.consumes = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}
	}
	if strings.Contains(r.path, "{namespace}") {
		r.params = append(r.params, namespaceParam)
	}
	if strings.Contains(r.path, "{name}") {
		r.params = append(r.params, param{"name", "path", "string", "name of the " + c.Kind})
	}
	options, err := b.defs.params(metaV1 + s.options)
	r.params = append(r.params, options...)
	sortParams(r.params)
	return r, err
}

// discoveryVerb returns the verb of an operation as discovery names it.
func (s customOperation) discoveryVerb() string {
	switch {
	case s.action != "":
		return s.action
	case s.verb == "read":
		return "get"
	case s.verb == "replace":
		return "update"
	}
	return s.verb
}

// describe returns the description of an operation.
func (s customOperation) describe() string {
	kind := s.at.kind.Kind
	of := func(before string) string { return phrase(Sub{Name: s.at.subresource}, before, kind) }
	switch {
	case s.action == "deletecollection":
		return "delete collection of " + kind
	case s.verb == "list":
		return "list objects of kind " + kind
	case s.verb == "patch":
		return "partially update " + of("the specified")
	case s.verb == "read" || s.verb == "replace":
		return s.verb + " " + of("the specified")
	}
	return s.verb + " " + withArticle(kind)
}
