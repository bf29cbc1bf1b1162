// Package admittest runs text scripts against admission plugins. A script is a list of cases; a case has the objects of a cluster,
// a write, and what a plugin does to it:
//
//	== a pod of a class that does not exist
//	-- has
//	(objects in YAML, with lines of --- between them)
//	-- may
//	(permissions of the user, one a line: verb resource name; or verb resource in namespace, with * for all)
//	-- user
//	(the name of the user, and the groups; bob if this section is missing)
//	-- from
//	(the address of the connection; if this section is missing, the caller is in the same process)
//	-- create
//	(an object in YAML)
//	-- answer
//	+ spec.priority: 5
//	refused: pods "a" is forbidden: ...
//
// For an update there is "-- old" before "-- update" or "-- update/status"; "-- delete" has the deleted object. "-- dry" makes
// it a dry run. The answer lists the fields that the plugin has added (+) or removed (-), its warnings and audit annotations
// (notes), and the changes of other objects in the same transaction. A script is named after its plugin; a dash and a further
// word tell several scripts of one plugin apart. The script "all" runs all plugins.
package admittest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

// updateAnswers is the environment variable that makes a run write the answers instead of comparing them.
const updateAnswers = "PROA_UPDATE"

// script is one case.
type script struct {
	title string
	text  string // all lines before the answer
	parts map[string]string
}

// Run runs every script in testdata. The text before the first case of a script is the configuration of its plugin.
// Cases may use objects of further kinds besides the built-in ones.
func Run(t *testing.T, newPlugins func(config map[string][]byte) ([]kind.Plugin, error), further ...*kind.Def) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	update := os.Getenv(updateAnswers) != ""
	defs := append(kinds.All(), further...)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		plugin, _, _ := strings.Cut(name, "-")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, cases := "", string(text)
		if !strings.HasPrefix(cases, "== ") {
			head, cases, _ = strings.Cut(cases, "\n== ")
			cases = "== " + cases
		}
		plugins, err := newPlugins(map[string][]byte{plugin: []byte(head)})
		if err != nil {
			t.Fatal(err)
		}
		wanted := slices.DeleteFunc(slices.Clone(plugins), func(p kind.Plugin) bool {
			return p.Name != plugin && (plugin != "all" || p.DisabledByDefault)
		})
		if len(wanted) == 0 {
			t.Errorf("%s: no plugin of that name", file)
		}
		var out strings.Builder
		if head != "" {
			out.WriteString(head + "\n")
		}
		for _, c := range parse(cases) {
			var got string
			t.Run(name+"/"+c.title, func(t *testing.T) {
				got = runCase(t, defs, wanted, &c)
				if want := strings.TrimSpace(c.parts["answer"]); got != want && !update {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
			fmt.Fprintf(&out, "== %s\n%s-- answer\n%s\n\n", c.title, c.text, got)
		}
		if update {
			if err := os.WriteFile(file, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// parse parses a script.
func parse(text string) (out []script) {
	part := ""
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(line, "== "); ok {
			out = append(out, script{title: strings.TrimSpace(title), parts: map[string]string{}})
			part = ""
			continue
		}
		if len(out) == 0 {
			continue
		}
		c := &out[len(out)-1]
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			part = strings.TrimSpace(name)
			c.parts[part] = ""
		} else {
			c.parts[part] += line
		}
		if part != "answer" {
			c.text += line
		}
	}
	return out
}

// runCase runs the plugins on the write of a case and returns what they did.
func runCase(t *testing.T, defs []*kind.Def, plugins []kind.Plugin, c *script) string {
	t.Helper()
	a := newAdmission(t, defs, c)
	d := newCluster(t, defs, c)
	a.Server = d
	var lines []string
	var joined []func(context.Context, kind.Replacer) error
	a.Warn = func(texts ...string) {
		for _, text := range texts {
			lines = append(lines, "warning: "+text)
		}
	}
	a.AddAuditAnnotation = func(key, value string) { lines = append(lines, "note: "+key+"="+value) }
	a.Kind = func(gvk schema.GroupVersionKind) *kind.Def {
		for _, d := range defs {
			if d.GroupVersionKind == gvk {
				return d
			}
		}
		return nil
	}
	a.AddToTransaction = func(add func(context.Context, kind.Replacer) error) { joined = append(joined, add) }
	before := fieldsOf(a.Object)
	a.Reinvocation = &kind.Reinvocation{}
	err := admit(t, plugins, a)
	if err == nil && a.Reinvocation.IsRequested() {
		a.Reinvocation.IsSecondRun = true
		err = admit(t, plugins, a)
	}
	tx := &replacer{fakeCluster: d}
	for _, add := range joined {
		if err == nil {
			err = add(t.Context(), tx)
		}
	}
	for _, s := range d.objects {
		if !maps.Equal(s.before, fieldsOf(s.Object)) {
			t.Errorf("a plugin changed %s, which is shared", s.GetName())
		}
	}
	lines = append(lines, tx.lines...)
	if err != nil {
		lines = append(lines, "refused: "+err.Error())
	} else if change := difference(before, fieldsOf(a.Object)); change != "" || len(lines) == 0 {
		lines = append(lines, cmp.Or(change, "unchanged"))
	}
	return strings.Join(lines, "\n")
}

func admit(t *testing.T, plugins []kind.Plugin, a *kind.Admission) error {
	t.Helper()
	for _, p := range plugins {
		if err := p.Admit(t.Context(), a); err != nil {
			return err
		}
	}
	return nil
}

// newAdmission returns the write of a case.
func newAdmission(t *testing.T, defs []*kind.Def, c *script) *kind.Admission {
	t.Helper()
	a := &kind.Admission{User: &user.DefaultInfo{Name: "bob"}}
	for part, text := range c.parts {
		switch verb, sub, _ := strings.Cut(part, "/"); verb {
		case "create", "update":
			a.Verb, a.Sub = verb, sub
			a.Def, a.Object = decode(t, defs, text)
		case "delete":
			a.Verb, a.Sub = verb, sub
			a.Def, a.Old = decode(t, defs, text)
		}
	}
	if text, ok := c.parts["old"]; ok {
		_, a.Old = decode(t, defs, text)
	}
	if who := strings.Fields(c.parts["user"]); len(who) > 0 {
		a.User = &user.DefaultInfo{Name: who[0], Groups: who[1:]}
	}
	if text := strings.TrimSpace(c.parts["from"]); text != "" {
		a.Remote = netip.MustParseAddr(text)
	}
	_, a.DryRun = c.parts["dry"]
	if a.Sub != "" && a.Def.Sub(a.Sub) == nil {
		a.Def = parentOf(defs, a.Sub)
	}
	a.Served, a.Def = a.Def, a.Def.Storage()
	if a.Served.Hub != nil && a.Sub == "" {
		a.Object, a.Old = toStorage(a.Served, a.Object), toStorage(a.Served, a.Old)
	}
	a.Versions = func(gr schema.GroupResource) (out []*kind.Def) {
		for _, d := range defs {
			if d.Resource() == gr {
				out = append(out, d)
			}
		}
		return out
	}
	switch {
	case a.Object != nil:
		a.Namespace, a.Name = a.Object.GetNamespace(), a.Object.GetName()
	case a.Old != nil:
		a.Namespace, a.Name = a.Old.GetNamespace(), a.Old.GetName()
	default:
		t.Fatal("nothing is written")
	}
	return a
}

// toStorage converts an object to its storage version.
func toStorage(def *kind.Def, obj kind.Object) kind.Object {
	if obj == nil {
		return nil
	}
	return def.ToHub(obj)
}

// newCluster returns the cluster of a case.
func newCluster(t *testing.T, defs []*kind.Def, c *script) *fakeCluster {
	t.Helper()
	d := &fakeCluster{may: c.parts["may"]}
	for text := range strings.SplitSeq(c.parts["has"], "---\n") {
		if strings.TrimSpace(text) != "" {
			def, o := decode(t, defs, text)
			d.objects = append(d.objects, storedObject{def.Resource(), o, fieldsOf(o)})
		}
	}
	return d
}

// parentOf returns the resource of a subresource with a kind of its own, such as bindings.
func parentOf(defs []*kind.Def, sub string) *kind.Def {
	for _, d := range defs {
		if d.Sub(sub) != nil {
			return d
		}
	}
	return nil
}

// decode decodes an object and sets its defaults. Objects without a namespace are in "ns".
func decode(t *testing.T, defs []*kind.Def, text string) (*kind.Def, kind.Object) {
	t.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		t.Fatal(err)
	}
	for _, d := range defs {
		if d.GroupVersionKind != meta.GroupVersionKind() {
			continue
		}
		obj := d.New()
		if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
			t.Fatal(err)
		}
		if d.Scope == kind.Namespaced && obj.GetNamespace() == "" {
			obj.SetNamespace("ns")
		}
		d.Default(obj)
		return d, obj
	}
	for _, d := range defs {
		for i := range d.Subs {
			if body := d.Subs[i].Body; body != nil && body.New != nil && body.GroupVersionKind == meta.GroupVersionKind() {
				obj := body.New()
				if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
					t.Fatal(err)
				}
				obj.SetNamespace("ns")
				return d, obj
			}
		}
	}
	t.Fatalf("no kind %s", meta.GroupVersionKind())
	return nil, nil
}

// fieldsOf returns an object as a list of fields and values.
func fieldsOf(o kind.Object) map[string]string {
	if o == nil {
		return nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return map[string]string{"": err.Error()}
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return map[string]string{"": err.Error()}
	}
	out := map[string]string{}
	flatten(out, "", v)
	return out
}

func flatten(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			flatten(out, strings.TrimPrefix(path+"."+key, "."), value)
		}
	case []any:
		for i, value := range v {
			flatten(out, fmt.Sprintf("%s[%d]", path, i), value)
		}
	default:
		out[path] = fmt.Sprint(v)
	}
}

// random matches the suffix of a generated name.
var random = regexp.MustCompile(`(kube-api-access-)[a-z0-9]{5}\b`)

// difference lists the fields that are not in both.
func difference(before, after map[string]string) string {
	var lines []string
	for path, value := range before {
		if got, ok := after[path]; !ok || got != value {
			lines = append(lines, fmt.Sprintf("- %s: %s", path, value))
		}
	}
	for path, value := range after {
		if was, ok := before[path]; !ok || was != value {
			lines = append(lines, fmt.Sprintf("+ %s: %s", path, value))
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return random.ReplaceAllString(strings.Join(lines, "\n"), "${1}xxxxx")
}

// storedObject is an object in the cluster.
type storedObject struct {
	resource schema.GroupResource
	kind.Object
	before map[string]string
}

// fakeCluster is a cluster with a few objects and permissions. Plugins may only call what it implements.
type fakeCluster struct {
	kind.Server
	objects []storedObject
	may     string
}

func (d *fakeCluster) Get(_ context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	for _, s := range d.objects {
		if s.resource == gr && s.GetNamespace() == namespace && s.GetName() == name {
			return s.Object, nil
		}
	}
	return nil, apierrors.NewNotFound(gr, name)
}

func (d *fakeCluster) List(_ context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error) {
	return func(yield func(kind.Object) bool) {
		for _, s := range d.objects {
			if s.resource == gr && (namespace == "" || s.GetNamespace() == namespace) && !yield(s.Object) {
				return
			}
		}
	}, nil
}

func (d *fakeCluster) ReviewAccess(_ context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	r := spec.ResourceAttributes
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	right := fmt.Sprintf("%s %s %s", r.Verb, resource, r.Name)
	rights := strings.Split(d.may, "\n")
	within := fmt.Sprintf("%s in %s", strings.TrimSpace(right), cmp.Or(r.Namespace, "*"))
	return authorizationv1.SubjectAccessReviewStatus{Allowed: slices.Contains(rights, right) || slices.Contains(rights, within)}
}

// replacer is the transaction of a write. It records what else is changed.
type replacer struct {
	*fakeCluster
	lines []string
}

func (r *replacer) Replace(gr schema.GroupResource, obj kind.Object) {
	for _, s := range r.objects {
		if s.resource != gr || s.GetNamespace() != obj.GetNamespace() || s.GetName() != obj.GetName() {
			continue
		}
		for line := range strings.Lines(difference(s.before, fieldsOf(obj))) {
			r.lines = append(r.lines, gr.Resource+" "+obj.GetName()+": "+strings.TrimSpace(line))
		}
		return
	}
	r.lines = append(r.lines, gr.Resource+" "+obj.GetName()+": is not there")
}
