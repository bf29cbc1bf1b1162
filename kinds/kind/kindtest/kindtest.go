// Package kindtest runs text scripts against kinds. A script is a list of cases; a case is an optional stored object, a request, and the
// answer: the object as it is stored, or the errors, one a line. The same scripts can be sent to an upstream server to record its
// answers.
//
//	== create: a title
//	(an object in YAML)
//	-- errors
//	invalid spec.replicas: Invalid value: -1: must be greater than or equal to 0
//
// The request is create, update or status (both of which need a "-- stored" object before the answer), or
// table. The answer may begin with warning lines.
package kindtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// Case is one request of a script.
type Case struct {
	Verb, Title    string
	Object, Stored string
	Answer         string
}

// upstream is the environment variable with the address of an upstream server to get the answers from, and its token.
const upstream = "PROA_KINDS_UPSTREAM"

// Run runs every script below dir against the kinds.
func Run(t *testing.T, defs []*kind.Def, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases := Parse(string(text))
		if address := os.Getenv(upstream); address != "" {
			asked := oracle{address}
			for i := range cases {
				cases[i].Answer = asked.answer(t, defs, &cases[i])
			}
			if err := os.WriteFile(file, []byte(Format(cases)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.Verb+": "+c.Title, func(t *testing.T) {
					if got := Answer(t, defs, &c); strings.TrimSpace(got) != strings.TrimSpace(c.Answer) {
						t.Errorf("answer differs\n%s", difference(c.Answer, got))
					}
				})
			}
		})
	}
}

// Parse parses a script.
func Parse(text string) []Case {
	var cases []Case
	var part *string
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "== "):
			verb, title, _ := strings.Cut(strings.TrimSpace(line[3:]), ": ")
			cases = append(cases, Case{Verb: verb, Title: title})
			part = &cases[len(cases)-1].Object
		case len(cases) == 0: // a comment at the top
		case strings.TrimSpace(line) == "-- stored":
			part = &cases[len(cases)-1].Stored
		case strings.TrimSpace(line) == "-- answer":
			part = &cases[len(cases)-1].Answer
		default:
			*part += line
		}
	}
	for i := range cases {
		cases[i].Answer = strings.TrimSpace(cases[i].Answer) + "\n"
	}
	return cases
}

// Format returns the text of a script.
func Format(cases []Case) string {
	var b strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&b, "== %s: %s\n%s\n", c.Verb, c.Title, strings.TrimSpace(c.Object))
		if c.Stored != "" {
			fmt.Fprintf(&b, "-- stored\n%s\n", strings.TrimSpace(c.Stored))
		}
		fmt.Fprintf(&b, "-- answer\n%s\n", strings.TrimSpace(c.Answer)+"\n")
	}
	return strings.TrimSpace(b.String()) + "\n"
}

const testUID = "a-b-c-d"

// Answer computes the answer of the kind to a case.
func Answer(t *testing.T, defs []*kind.Def, c *Case) string {
	t.Helper()
	d, obj := decode(t, defs, c.Object)
	var old kind.Object
	if c.Stored != "" {
		d, old = decode(t, defs, c.Stored)
		setCreated(old)
		status := old.DeepCopyObject().(kind.Object)
		prepare(d, &old, nil)
		if errs := d.Storage().Validate(old, nil); len(errs) > 0 {
			t.Fatalf("stored object: %v", errs.ToAggregate())
		}
		if hasStatus(c.Stored) {
			keepMetadata(status, old)
			if d.ToHub != nil {
				status = d.ToHub(status)
			}
			d.Storage().Sub("status").Prepare(status, old)
			old = status
		}
	}
	if c.Verb == "table" {
		setCreated(obj)
		prepare(d, &obj, nil)
		return Table(d, obj)
	}
	if old == nil {
		setCreated(obj)
		prepare(d, &obj, nil)
		return result(d, obj, nil, validateAs(d, obj, nil))
	}
	keepMetadata(obj, old)
	if c.Verb == "update" {
		prepare(d, &obj, old)
		return result(d, obj, old, validateAs(d, obj, old))
	}
	sub := d.Storage().Sub(c.Verb)
	if sub == nil {
		t.Fatalf("no subresource %q", c.Verb)
	}
	if d.ToHub != nil {
		obj = d.ToHub(obj)
	}
	sub.Prepare(obj, old.DeepCopyObject().(kind.Object))
	var warnings []string
	if sub.Warn != nil {
		warnings = sub.Warn(obj, old)
	}
	return resultOf(d, obj, sub.Validate(obj, old), warnings)
}

// validateAs validates as a request for the version d does; the objects are of the storage version.
func validateAs(d *kind.Def, o, old kind.Object) field.ErrorList {
	if d.Hub == nil {
		return d.Validate(o, old)
	}
	if old != nil {
		old = d.FromHub(old)
	}
	return d.Validate(d.FromHub(o), old)
}

// hasStatus reports whether an object has a status, which a server stores with a second request.
func hasStatus(text string) bool { return strings.Contains("\n"+text, "\nstatus:") }

func decode(t *testing.T, defs []*kind.Def, text string) (*kind.Def, kind.Object) {
	t.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		t.Fatal(err)
	}
	for _, d := range defs {
		if d.GroupVersionKind == meta.GroupVersionKind() {
			obj := d.New()
			if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
				t.Fatal(err)
			}
			if d.Scope == kind.Namespaced && obj.GetNamespace() == "" {
				obj.SetNamespace("default")
			}
			d.Default(obj)
			return d, obj
		}
	}
	t.Fatalf("no kind %s", meta.GroupVersionKind())
	return nil, nil
}

// setCreated sets the metadata that a server sets on creation.
func setCreated(o kind.Object) {
	o.SetUID(types.UID(testUID))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetResourceVersion("")
}

// keepMetadata sets the metadata that a server keeps on update.
func keepMetadata(o, old kind.Object) {
	old.SetResourceVersion("1")
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetResourceVersion(old.GetResourceVersion())
}

func prepare(d *kind.Def, o *kind.Object, old kind.Object) {
	if d.ToHub != nil {
		*o = d.ToHub(*o)
	}
	if old != nil {
		old = old.DeepCopyObject().(kind.Object)
	}
	d.Storage().Prepare(*o, old)
	if f := d.Storage().PrepareFor; f != nil {
		f(&user.DefaultInfo{Name: "admin", UID: "u1", Groups: []string{"system:masters", "system:authenticated"}}, *o, old)
	}
}

func result(d *kind.Def, o, old kind.Object, errs field.ErrorList) string {
	return resultOf(d, o, errs, d.Storage().Warn(o, old))
}

func resultOf(d *kind.Def, o kind.Object, errs field.ErrorList, warnings []string) string {
	var b strings.Builder
	if len(errs) > 0 {
		for _, e := range errs {
			fmt.Fprintf(&b, "%s %s: %s\n", string(e.Type), e.Field, e.ErrorBody())
		}
		return mask(b.String())
	}
	if d.Deprecated != "" {
		warnings = append([]string{d.Deprecated}, warnings...)
	}
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if d.FromHub != nil {
		o = d.FromHub(o)
	}
	o.GetObjectKind().SetGroupVersionKind(d.GroupVersionKind)
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	b.WriteString(formatStored(text))
	return mask(b.String())
}

// formatStored returns an object without what differs from run to run.
func formatStored(text []byte) string {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return err.Error() + "\n"
	}
	for _, name := range []string{"uid", "creationTimestamp", "managedFields", "resourceVersion"} {
		unstructured.RemoveNestedField(u.Object, "metadata", name)
	}
	dropNull(u.Object)
	out, err := yaml.Marshal(u.Object)
	if err != nil {
		return err.Error() + "\n"
	}
	return string(out)
}

// dropNull removes the empty creation times inside templates.
func dropNull(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil {
				delete(v, key)
			}
			dropNull(value)
		}
	case []any:
		for _, value := range v {
			dropNull(value)
		}
	}
}

// mask hides what differs from run to run: UIDs, and ages that depend on the current date.
func mask(text string) string {
	text = regexp.MustCompile(testUID+`|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(text, "UID")
	ago := duration.HumanDuration(time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)))
	return strings.ReplaceAll(text, `"`+ago+`"`, `"since 2020"`)
}

// Table returns the columns of a kind and the row of an object; ages are left out.
func Table(d *kind.Def, o kind.Object) string {
	if d.FromHub != nil {
		o = d.FromHub(o)
	}
	return mask(tableText(d.Columns, d.Row(o)))
}

func tableText(columns []metav1.TableColumnDefinition, cells []any) string {
	var b strings.Builder
	for i, c := range columns {
		cell := any("<age>")
		if i < len(cells) && c.Name != "Age" {
			cell = cells[i]
		}
		text, err := json.Marshal(cell)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "%s|%s|%s|%d|%s|%.40s\n", c.Name, c.Type, c.Format, c.Priority, text, c.Description)
	}
	return b.String()
}

// difference returns the lines that are not in both texts.
func difference(want, got string) string {
	var b strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range w {
		if strings.Count("\n"+got+"\n", "\n"+line+"\n") < strings.Count("\n"+want+"\n", "\n"+line+"\n") {
			fmt.Fprintf(&b, "want %s\n", line)
		}
	}
	for _, line := range g {
		if strings.Count("\n"+want+"\n", "\n"+line+"\n") < strings.Count("\n"+got+"\n", "\n"+line+"\n") {
			fmt.Fprintf(&b, "got  %s\n", line)
		}
	}
	if b.Len() == 0 {
		return "the order differs:\nwant\n" + want + "got\n" + got
	}
	return b.String()
}
