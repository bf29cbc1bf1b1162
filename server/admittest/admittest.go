// Package admittest runs text scripts against admission plugins. A script is a list of cases; a case is what the cluster has, a
// write, and what a plugin does to it:
//
//	== a pod of a class that is not there
//	-- has
//	(objects in YAML, with lines of --- between them)
//	-- may
//	(rights of the user, one a line: verb resource name)
//	-- create
//	(an object in YAML)
//	-- answer
//	+ spec.priority: 5
//	refused: pods "a" is forbidden: ...
//
// For an update there is "-- old" before "-- update" or "-- update/status". The answer lists the fields that the plugin has
// added (+) or taken away (-). The name of a script is that of the plugin it is for; the script "all" runs them all.
package admittest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
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

// updateAnswers is the variable that lets a run write the answers instead of comparing them.
const updateAnswers = "PROA_UPDATE"

// script is one case.
type script struct {
	title string
	text  string // all lines before the answer
	parts map[string]string
}

// Run runs every script in testdata.
func Run(t *testing.T, plugins []kind.Plugin) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	update := os.Getenv(updateAnswers) != ""
	defs := kinds.All()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		wanted := slices.DeleteFunc(slices.Clone(plugins), func(p kind.Plugin) bool { return p.Name != name && name != "all" })
		if len(wanted) == 0 {
			t.Errorf("%s: no plugin of that name", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, c := range parse(string(text)) {
			var got string
			t.Run(name+"/"+c.title, func(t *testing.T) {
				got = answer(t, defs, wanted, &c)
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

// parse reads a script.
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

// answer is what the plugins do to the write of a case.
func answer(t *testing.T, defs []*kind.Def, plugins []kind.Plugin, c *script) string {
	t.Helper()
	a := &kind.Admission{User: &user.DefaultInfo{Name: "bob"}}
	for part, text := range c.parts {
		if verb, sub, _ := strings.Cut(part, "/"); verb == "create" || verb == "update" {
			a.Verb, a.Sub = verb, sub
			a.Def, a.Object = decode(t, defs, text)
		}
	}
	if a.Object == nil {
		t.Fatal("nothing is written")
	}
	d := &door{may: c.parts["may"]}
	for text := range strings.SplitSeq(c.parts["has"], "---\n") {
		if strings.TrimSpace(text) != "" {
			def, o := decode(t, defs, text)
			d.objects = append(d.objects, stored{def.Resource(), o, shape(o)})
		}
	}
	if text, ok := c.parts["old"]; ok {
		_, a.Old = decode(t, defs, text)
	}
	if a.Sub != "" && a.Def.Sub(a.Sub) == nil {
		a.Def = parentOf(defs, a.Sub)
	}
	a.Door, a.Namespace, a.Name = d, a.Object.GetNamespace(), a.Object.GetName()
	before := shape(a.Object)
	var err error
	for _, p := range plugins {
		if err = p.Admit(t.Context(), a); err != nil {
			break
		}
	}
	for _, s := range d.objects {
		if !maps.Equal(s.before, shape(s.Object)) {
			t.Errorf("a plugin changed %s, which is shared", s.GetName())
		}
	}
	if err != nil {
		return "refused: " + err.Error()
	}
	return difference(before, shape(a.Object))
}

// parentOf finds the resource that a subresource with a type of its own belongs to, such as that of bindings.
func parentOf(defs []*kind.Def, sub string) *kind.Def {
	for _, d := range defs {
		if d.Sub(sub) != nil {
			return d
		}
	}
	return nil
}

// decode reads an object and fills in its defaults. Objects without a namespace are in "ns".
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
	t.Fatalf("no kind %s", meta.GroupVersionKind())
	return nil, nil
}

// shape is an object as a list of fields and values.
func shape(o kind.Object) map[string]string {
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

// random is the end of a generated name.
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
	if len(lines) == 0 {
		return "unchanged"
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return random.ReplaceAllString(strings.Join(lines, "\n"), "${1}xxxxx")
}

type stored struct {
	resource schema.GroupResource
	kind.Object
	before map[string]string
}

// door is a cluster that has a few objects and knows a few rights. What it does not implement no plugin may call.
type door struct {
	kind.Door
	objects []stored
	may     string
}

func (d *door) Get(_ context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	for _, s := range d.objects {
		if s.resource == gr && s.GetNamespace() == namespace && s.GetName() == name {
			return s.Object, nil
		}
	}
	return nil, apierrors.NewNotFound(gr, name)
}

func (d *door) List(_ context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error) {
	return func(yield func(kind.Object) bool) {
		for _, s := range d.objects {
			if s.resource == gr && (namespace == "" || s.GetNamespace() == namespace) && !yield(s.Object) {
				return
			}
		}
	}, nil
}

func (d *door) ReviewAccess(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	r := spec.ResourceAttributes
	right := fmt.Sprintf("%s %s %s", r.Verb, r.Resource, r.Name)
	return authorizationv1.SubjectAccessReviewStatus{Allowed: slices.Contains(strings.Split(d.may, "\n"), right)}
}
