package controltest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

var (
	generated = regexp.MustCompile(`~\d+`)
	refused   = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}" is forbidden`) // a generated name of a rejected object
	ages      = regexp.MustCompile(`\s(\d+[smhd])+(\s|$)`)
	moments   = regexp.MustCompile(`(timeAdded|lastTransitionTime): .*`)
)

// registerName assigns an object with a generated name the name that scripts show, and remembers its UID.
func (s *player) registerName(o kind.Object) {
	s.uids[string(o.GetUID())] = true
	prefix := o.GetGenerateName()
	if prefix == "" || s.names[o.GetName()] != "" {
		return
	}
	s.counts[prefix]++
	s.names[o.GetName()] = fmt.Sprintf("%s~%d", prefix, s.counts[prefix])
}

// shownName returns the name that scripts show for an object.
func (s *player) shownName(o kind.Object) string {
	name := o.GetName()
	if shown := s.names[name]; shown != "" {
		name = shown
	}
	if ns := o.GetNamespace(); ns != "" && ns != "default" {
		return ns + "/" + name
	}
	return name
}

func (s *player) matches(o kind.Object, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, s.shownName(o)); return ok })
}

// mask replaces generated names and UIDs.
func (s *player) mask(text string) string {
	names := make([]string, 0, len(s.names))
	for n := range s.names {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, n := range names {
		text = strings.ReplaceAll(text, n, s.names[n])
	}
	for uid := range s.uids {
		if uid != "" {
			text = strings.ReplaceAll(text, uid, "UID")
		}
	}
	return refused.ReplaceAllString(text, `-~" is forbidden`)
}

// show prints a table as kubectl does.
func (s *player) show(resource string) (string, error) {
	def, objects, err := s.list(resource)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var shown []int
	var head []string
	for i, c := range def.Columns {
		if c.Priority == 0 {
			shown, head = append(shown, i), append(head, strings.ToUpper(c.Name))
		}
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	var rows []string
	for _, o := range objects {
		row := def.Row(o)
		var cells []string
		for _, i := range shown {
			cell := fmt.Sprint(row[i])
			if i == 0 {
				cell = s.shownName(o)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, s.mask(strings.Join(cells, "\t")))
	}
	slices.Sort(rows)
	for _, r := range rows {
		fmt.Fprintln(w, r)
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return trim(b.String()), nil
}

// trim removes spaces at the ends of lines.
func trim(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// yaml prints an object without managed fields and resourceVersion, or some of its fields.
func (s *player) yaml(args []string) (string, error) {
	def, obj, err := s.find(args[0], args[1])
	if err != nil {
		return "", err
	}
	// It may contain generated names of other objects, which list registers.
	for _, resource := range []string{"pods", "replicasets"} {
		if _, _, err := s.list(resource); err != nil {
			return "", err
		}
	}
	obj.SetManagedFields(nil)
	obj.SetResourceVersion("")
	obj.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return "", err
	}
	if len(args) > 2 {
		picked := map[string]any{}
		for _, field := range args[2:] {
			v, found, err := unstructured.NestedFieldNoCopy(doc, strings.Split(field, ".")...)
			if err != nil {
				return "", err
			}
			if found {
				picked[field] = v
			}
		}
		doc = picked
	}
	out, err := yaml.Marshal(doc)
	return s.mask(string(out)), err
}

// events prints the Events.
func (s *player) events() (string, error) {
	_, objects, err := s.list("events")
	if err != nil {
		return "", err
	}
	for _, resource := range []string{"pods", "replicasets", "jobs"} {
		if _, _, err := s.list(resource); err != nil {
			return "", err
		}
	}
	slices.SortStableFunc(objects, func(a, b kind.Object) int {
		return when(a).Compare(when(b).Time)
	})
	var b strings.Builder
	for _, o := range objects {
		e := o.(*corev1.Event)
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (x%d)", e.Count)
		}
		fmt.Fprintf(&b, "%s/%s %s %s: %s%s\n", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Type, e.Reason, e.Message,
			times)
	}
	return s.mask(b.String()), nil
}

func when(o kind.Object) *metav1.Time { return &o.(*corev1.Event).FirstTimestamp }
