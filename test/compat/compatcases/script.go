package compatcases

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"proa.dev/test/compat/answerdiff"
)

// script is a hand-written case: definitions that are made first, and requests
// in the order in which they are sent. Scripts tell what the derived requests
// of a kind cannot: how objects of several kinds act together.
type script struct {
	Name string `json:"name"`
	// Namespaced gives the script a namespace of its own, $NAMESPACE.
	Namespaced bool `json:"namespaced"`
	// Define are definitions that both servers serve before the first step.
	Define []map[string]any `json:"define"`
	Steps  []scriptStep     `json:"steps"`
}

// scriptStep is one request, or one for each of its variants.
type scriptStep struct {
	Name   string            `json:"name"`
	Do     string            `json:"do"` // method and path with query
	Type   string            `json:"type"`
	Accept string            `json:"accept"`
	Header map[string]string `json:"header"`
	Body   any               `json:"body"`
	Text   string            `json:"text"` // the body as it is
	From   string            `json:"from"` // the kept answer that the body is merged into
	Save   string            `json:"save"`
	// Until repeats the request until the answer, as its code, its warnings and
	// its JSON, matches: what a server does in its own time has to be waited for.
	Until string `json:"until"`
	// Only leaves of the answer what is named like this, where the whole
	// document is about objects of other cases too.
	Only string `json:"only"`
	Must bool   `json:"must"` // upstream accepts it, or the corpus is wrong
	// Variants are merged into the body, one after the other, or take the place
	// of what is there at the path At, as spec.versions.0.name.
	Variants []variant `json:"variants"`
	At       string    `json:"at"`
}

// variant is a merge patch to the body of a step.
type variant struct {
	Name string `json:"name"`
	Body any    `json:"body"`
	Text string `json:"text"`
}

// loadScripts reads the scripts of a folder.
func loadScripts(c *corpus, dir string) ([]*TestCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []*TestCase
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for i, doc := range bytes.Split(data, []byte("\n---\n")) {
			s, err := readScript(c, doc)
			if err != nil {
				return nil, fmt.Errorf("%s, document %d: %w", file, i, err)
			}
			test, err := s.testCase()
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", file, s.Name, err)
			}
			out = append(out, test)
		}
	}
	return out, nil
}

// readScript replaces the words of the corpus in a document and parses it.
func readScript(c *corpus, doc []byte) (*script, error) {
	plain, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	var head struct{ Name string }
	if err := yaml.Unmarshal(plain, &head); err != nil {
		return nil, err
	}
	s := &script{}
	if err := yaml.UnmarshalStrict([]byte(c.replace(string(plain), scriptNamespace(head.Name), 0)), s); err != nil {
		return nil, err
	}
	if s.Name == "" || len(s.Steps) == 0 {
		return nil, fmt.Errorf("a script has a name and steps")
	}
	return s, nil
}

func scriptNamespace(name string) string {
	return "compat-" + strings.ReplaceAll(strings.ReplaceAll(name, "/", "-"), " ", "-")
}

func (s *script) testCase() (*TestCase, error) {
	c := &TestCase{Name: s.Name, Prepare: s.prepare}
	for i := range s.Steps {
		steps, err := s.Steps[i].expand()
		if err != nil {
			return nil, fmt.Errorf("step %q: %w", s.Steps[i].Name, err)
		}
		c.Steps = append(c.Steps, steps...)
	}
	return c, nil
}

func (s *script) prepare(ctx context.Context, t *Target) error {
	for _, d := range s.Define {
		if err := define(ctx, t, d); err != nil {
			return err
		}
	}
	if s.Namespaced {
		return makeNamespace(ctx, t, scriptNamespace(s.Name))
	}
	return nil
}

// expand makes the steps that the engine sends.
func (s *scriptStep) expand() ([]Step, error) {
	method, target, ok := strings.Cut(s.Do, " ")
	if !ok {
		return nil, fmt.Errorf("do is %q, want a method and a path", s.Do)
	}
	path, raw, _ := strings.Cut(target, "?")
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	until, err := regexp.Compile(s.Until)
	if err != nil {
		return nil, err
	}
	only, err := regexp.Compile(s.Only)
	if err != nil {
		return nil, err
	}
	base := Call{Method: method, path: path, Query: q, accept: s.Accept, contentType: s.Type, header: s.Header}
	one := func(name string, body any, text string) Step {
		request := Step{Name: name, Save: s.Save, Must: s.Must, Build: func(state *State) *Call {
			c := base
			c.Body = s.content(state, body, text)
			return &c
		}}
		if s.Until != "" {
			request.Until = until
		}
		if s.Only != "" {
			request.Keep = only
		}
		return request
	}
	if len(s.Variants) == 0 {
		return []Step{one(s.Name, s.Body, s.Text)}, nil
	}
	var out []Step
	for _, v := range s.Variants {
		body := answerdiff.CopyTree(s.Body)
		switch {
		case s.At != "":
			body = put(body, strings.Split(s.At, "."), v.Body)
		case v.Body != nil:
			body = Merge(body, v.Body)
		}
		out = append(out, one(s.Name+": "+v.Name, body, v.Text))
	}
	return out, nil
}

// put sets the value at a path of keys and indices of lists.
func put(tree any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch x := tree.(type) {
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(x) {
			x[i] = put(x[i], path[1:], value)
		}
		return x
	case map[string]any:
		x[path[0]] = put(x[path[0]], path[1:], value)
		return x
	}
	return map[string]any{path[0]: put(nil, path[1:], value)}
}

// content is the body of a request: text as it is, a tree, or a tree merged
// into a kept answer.
func (s *scriptStep) content(state *State, body any, text string) []byte {
	switch {
	case text != "":
		return []byte(text)
	case s.From != "":
		o := state.object(s.From)
		if meta, ok := o["metadata"].(map[string]any); ok {
			delete(meta, "managedFields")
		}
		return answerdiff.Encode(Merge(o, body))
	case body == nil:
		return nil
	}
	return answerdiff.Encode(body)
}

// define makes a definition and waits until its served versions answer.
func define(ctx context.Context, t *Target, definition map[string]any) error {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	a, err := t.Do(ctx, &Call{Method: http.MethodPost, path: path, Body: answerdiff.Encode(definition)})
	if err != nil {
		return err
	}
	name := answerdiff.Text(definition["metadata"], "name")
	if a.Code != http.StatusCreated && a.Code != http.StatusConflict {
		return fmt.Errorf("%s: create definition %s: %d %s", t.name, name, a.Code, answerdiff.Show(a.Body))
	}
	for _, r := range definedResources(definition) {
		k := &kindCase{resource: r}
		if err := t.await(ctx, "/apis/"+r.apiVersion()+"/"+k.plural); err != nil {
			return err
		}
	}
	return nil
}

// definedResources are the resources that a definition serves.
func definedResources(definition map[string]any) []*resource {
	spec, _ := definition["spec"].(map[string]any)
	var out []*resource
	for _, v := range answerdiff.List(spec, "versions") {
		version, _ := v.(map[string]any)
		if version["served"] != true {
			continue
		}
		r := &resource{
			group: answerdiff.Text(spec, "group"), version: answerdiff.Text(v, "name"), plural: answerdiff.Text(spec["names"], "plural"),
			kind:       answerdiff.Text(spec["names"], "kind"),
			namespaced: answerdiff.Text(spec, "scope") == "Namespaced",
			verbs:      []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		}
		subs, _ := version["subresources"].(map[string]any)
		for _, sub := range []string{"status", "scale"} {
			if subs[sub] != nil {
				r.subs = append(r.subs, sub)
			}
		}
		out = append(out, r)
	}
	return out
}

// makeNamespace creates a namespace and waits until it has what controllers put into it.
func makeNamespace(ctx context.Context, t *Target, name string) error {
	body := answerdiff.Encode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	a, err := t.Do(ctx, &Call{Method: http.MethodPost, path: "/api/v1/namespaces", Body: body})
	if err != nil {
		return err
	}
	if a.Code != http.StatusCreated {
		return fmt.Errorf("%s: create namespace: %d %s", t.name, a.Code, answerdiff.Show(a.Body))
	}
	for _, path := range []string{"/serviceaccounts/default", "/configmaps/kube-root-ca.crt"} {
		if err := t.await(ctx, "/api/v1/namespaces/"+name+path); err != nil {
			return err
		}
	}
	return nil
}

// awaitLimit bounds how long a case waits for what a server does in its own
// time.
const awaitLimit = 15 * time.Second

// await asks for a path until it is there.
func (t *Target) await(ctx context.Context, path string) error {
	a, err := t.Repeat(ctx, &Call{Method: http.MethodGet, path: path}, regexp.MustCompile(`^200 `))
	if err != nil {
		return err
	}
	if a.Code != http.StatusOK {
		return fmt.Errorf("%s: %s answers %d", t.name, path, a.Code)
	}
	return nil
}

// Repeat sends a request until its answer matches or the time is over, and
// returns the last answer.
func (t *Target) Repeat(ctx context.Context, c *Call, until *regexp.Regexp) (*Answer, error) {
	deadline := time.Now().Add(awaitLimit)
	for {
		a, err := t.Do(ctx, c)
		if err != nil || until == nil ||
			until.MatchString(fmt.Sprintf("%d %s %s", a.Code, strings.Join(a.Warnings, " "), answerdiff.Encode(a.Body))) ||
			time.Now().After(deadline) {
			return a, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// KeepOnly leaves of the lists and maps of a document what is named like this:
// the entries of a list by their name, those of the maps that documents about
// the whole server consist of by their key.
func KeepOnly(v any, name *regexp.Regexp) any {
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for k, x := range o {
		switch k {
		case "items", "groups", "resources", "rows":
			out[k] = keepItems(x, name)
		case "paths", "definitions", "schemas":
			out[k] = keepKeys(x, name)
		case "components":
			out[k] = KeepOnly(x, name)
		case "metadata", "info":
		default:
			out[k] = x
		}
	}
	return out
}

func keepItems(v any, name *regexp.Regexp) any {
	items, ok := v.([]any)
	if !ok {
		return v
	}
	out := []any{}
	for _, item := range items {
		if name.MatchString(answerdiff.NameOf(item)) {
			out = append(out, item)
		}
	}
	return out
}

func keepKeys(v any, name *regexp.Regexp) any {
	entries, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for k, x := range entries {
		if name.MatchString(k) {
			out[k] = x
		}
	}
	return out
}
