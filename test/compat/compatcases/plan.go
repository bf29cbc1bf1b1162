// Package compatcases plans the requests whose answers are compared: for every resource that both servers serve, from
// the examples of a corpus, and from scripts.
package compatcases

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"proa.dev/test/compat/answerdiff"
)

// resource is one served resource, as upstream's discovery describes it.
type resource struct {
	group, version, plural, kind string
	namespaced                   bool
	verbs                        []string
	subs                         []string
}

func (r *resource) apiVersion() string {
	if r.group == "" {
		return r.version
	}
	return r.group + "/" + r.version
}

func (r *resource) key() string { return r.apiVersion() + "/" + r.kind }

func (r *resource) name() string {
	return strings.TrimSuffix(r.plural+"."+r.group, ".") + "/" + r.version
}

func (r *resource) can(verb string) bool { return slices.Contains(r.verbs, verb) }

// Plan makes all cases: those about the server as a whole, the scripts, and one
// for each resource that upstream serves and each custom one of the corpus.
func Plan(ctx context.Context, a *Target, corpus *corpus, focus *regexp.Regexp) ([]*TestCase, error) {
	resources, err := discover(ctx, a)
	if err != nil {
		return nil, err
	}
	scripts, err := loadScripts(corpus, filepath.Join(corpus.dir, "scripts"))
	if err != nil {
		return nil, err
	}
	cases := append(globalCases(resources), scripts...)
	for _, r := range append(resources, corpus.custom...) {
		k := newKindCase(corpus, r)
		cases = append(cases, k.cases()...)
	}
	return slices.DeleteFunc(cases, func(c *TestCase) bool { return !focus.MatchString(c.Name) }), nil
}

// discover reads the legacy discovery documents of a server.
func discover(ctx context.Context, t *Target) ([]*resource, error) {
	groups, err := t.Do(ctx, &Call{Method: http.MethodGet, path: "/apis"})
	if err != nil {
		return nil, err
	}
	paths := []string{"/api/v1"}
	for _, g := range answerdiff.List(groups.Body, "groups") {
		for _, v := range answerdiff.List(g, "versions") {
			paths = append(paths, "/apis/"+answerdiff.Text(v, "groupVersion"))
		}
	}
	var out []*resource
	for _, path := range paths {
		doc, err := t.Do(ctx, &Call{Method: http.MethodGet, path: path})
		if err != nil {
			return nil, err
		}
		out = append(out, resourcesOf(doc.Body)...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s serves no resources", t.name)
	}
	return out, nil
}

func resourcesOf(doc any) []*resource {
	group, version, ok := strings.Cut(answerdiff.Text(doc, "groupVersion"), "/")
	if !ok {
		group, version = "", group
	}
	byName := map[string]*resource{}
	var out []*resource
	for _, item := range answerdiff.List(doc, "resources") {
		name, sub, isSub := strings.Cut(answerdiff.Text(item, "name"), "/")
		if isSub {
			if r := byName[name]; r != nil {
				r.subs = append(r.subs, sub)
			}
			continue
		}
		r := &resource{group: group, version: version, plural: name, kind: answerdiff.Text(item, "kind")}
		r.namespaced, _ = item.(map[string]any)["namespaced"].(bool)
		for _, v := range answerdiff.List(item, "verbs") {
			r.verbs = append(r.verbs, fmt.Sprint(v))
		}
		byName[name] = r
		out = append(out, r)
	}
	return out
}

// kindCase makes the steps of one resource.
type kindCase struct {
	*resource
	corpus    *corpus
	namespace string
	full      map[string]any
	steps     []Step
}

func newKindCase(c *corpus, r *resource) *kindCase {
	k := &kindCase{resource: r, corpus: c, full: c.full[r.key()]}
	if r.namespaced {
		k.namespace = "compat-" + strings.ReplaceAll(cmp.Or(r.group, "core"), ".", "-") + "-" + r.version + "-" + r.plural
		if len(k.namespace) > 63 {
			k.namespace = k.namespace[:63]
		}
	}
	return k
}

// cases splits what is asked of one resource into cases with state of their
// own, so that one early difference does not hide the rest.
func (k *kindCase) cases() []*TestCase {
	if _, ok := k.corpus.minimalObject(k.key(), k.namespace, 1); !ok && k.can("create") {
		return []*TestCase{{Name: k.name(), Steps: []Step{{Name: "corpus has no minimal object", Must: true, Build: func(*State) *Call {
			return &Call{Method: http.MethodGet, path: "/no-minimal-object-of/" + k.key()}
		}}}}}
	}
	whole := &TestCase{Name: k.name(), Prepare: k.prepare}
	if !k.can("get") {
		k.reviewSteps()
		whole.Steps = k.steps
		return []*TestCase{whole}
	}
	if !k.can("create") {
		k.readSteps()
		whole.Steps = k.steps
		return []*TestCase{whole}
	}
	k.lifeSteps()
	k.readSteps()
	k.listSteps()
	k.watchSteps()
	k.updateSteps()
	k.patchSteps()
	k.applySteps()
	k.subSteps()
	k.handSteps()
	k.invalidSteps()
	k.probeSteps()
	k.deleteSteps()
	whole.Steps = k.steps
	switch k.kind {
	case "CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration", "ServiceCIDR", "ValidatingAdmissionPolicy":
		// The server writes status on its own time, so events have no fixed
		// order, and a write has to be left alone for a while.
		whole.Settle = 400 * time.Millisecond
		return []*TestCase{whole}
	}
	if k.can("watch") {
		whole.List = func() *Call { return &Call{Method: http.MethodGet, path: k.path("", ""), Query: k.ours()} }
		whole.Watch = whole.List
	}
	return []*TestCase{whole}
}

// prepare makes the definition of a custom kind, and the namespace of the case.
func (k *kindCase) prepare(ctx context.Context, t *Target) error {
	if d := k.corpus.defined[k.key()]; d != nil {
		if err := define(ctx, t, d); err != nil {
			return err
		}
	}
	if k.namespace == "" {
		return nil
	}
	return makeNamespace(ctx, t, k.namespace)
}

// path is the URL path of the collection, of an object, or of a subresource.
func (k *kindCase) path(name, sub string) string {
	p := "/api/" + k.version
	if k.group != "" {
		p = "/apis/" + k.group + "/" + k.version
	}
	if k.namespaced && k.namespace != "" {
		p += "/namespaces/" + k.namespace
	}
	p += "/" + k.plural
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	if sub != "" {
		p += "/" + sub
	}
	return p
}

// ours is a query that selects the objects of this run: other cases and the
// server itself may write the same kind.
func (k *kindCase) ours() url.Values { return url.Values{"labelSelector": {"compat=yes"}} }

// minimal is the n-th minimal object.
func (k *kindCase) minimal(n int) map[string]any {
	object, _ := k.corpus.minimalObject(k.key(), k.namespace, n)
	return object
}

// objectName is the name of the n-th minimal object.
func (k *kindCase) objectName(n int) string { return answerdiff.Text(k.minimal(n)["metadata"], "name") }

func (k *kindCase) add(name, save string, build func(*State) *Call) {
	k.steps = append(k.steps, Step{Name: name, Save: save, Build: build})
}

// get, post and put add steps with a fixed request.
func (k *kindCase) get(name, path, accept string, query url.Values) {
	k.add(name, "", func(*State) *Call { return &Call{Method: http.MethodGet, path: path, accept: accept, Query: query} })
}

func (k *kindCase) post(name string, query url.Values, body any) {
	k.add(name, "", func(*State) *Call {
		return &Call{Method: http.MethodPost, path: k.path("", ""), Query: query, Body: answerdiff.Encode(body)}
	})
}

// dry is the query of a dry run, with more pairs of key and value.
func dry(more ...string) url.Values {
	q := url.Values{"dryRun": {"All"}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return q
}
