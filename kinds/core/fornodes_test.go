package core

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/core/podkind"
	"proa.dev/kinds/kind"
)

// fill sets every field below v to a value that is not zero: maps and lists get one element.
func fill(v reflect.Value, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Struct:
		if t, ok := v.Addr().Interface().(*metav1.Time); ok {
			*t = metav1.Unix(1e9, 0)
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), depth-1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	}
}

// paths returns the paths of the values in an object that are not empty, with "*" for the elements of lists.
func paths(at string, v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			out = append(out, paths(at+"."+k, e)...)
		}
	case []any:
		for _, e := range v {
			out = append(out, paths(at+".*", e)...)
		}
	case nil:
	default:
		if !reflect.ValueOf(v).IsZero() {
			return []string{at}
		}
	}
	return out
}

// TestFieldsVisibleToOtherNodes fills every field of an object, and compares those that are visible to other nodes with a list:
// fields that a later version of the API adds must not be visible.
func TestFieldsVisibleToOtherNodes(t *testing.T) {
	meta := []string{".apiVersion", ".kind", ".metadata.creationTimestamp", ".metadata.deletionGracePeriodSeconds",
		".metadata.deletionTimestamp", ".metadata.labels.x",
		".metadata.name", ".metadata.namespace", ".metadata.resourceVersion", ".metadata.uid"}
	for _, tt := range []struct {
		def  *kind.Def
		want []string
	}{
		{podkind.Pods(), []string{".metadata.annotations.kubernetes.io/config.mirror", ".spec.containers.*.ports.*.containerPort",
			".spec.containers.*.ports.*.name", ".spec.containers.*.ports.*.protocol",
			".spec.hostNetwork", ".spec.initContainers.*.ports.*.containerPort", ".spec.initContainers.*.ports.*.name",
			".spec.initContainers.*.ports.*.protocol",
			".spec.initContainers.*.restartPolicy", ".spec.nodeName", ".status.phase", ".status.podIP", ".status.podIPs.*.ip"}},
		{nodekind.Nodes(nodekind.Hooks{}),
			[]string{".spec.podCIDR", ".spec.podCIDRs.*", ".spec.taints.*.effect", ".spec.taints.*.key", ".spec.taints.*.timeAdded",
				".spec.taints.*.value", ".spec.unschedulable",
				".status.addresses.*.address", ".status.addresses.*.type"}},
		{Namespaces(), []string{".status.phase"}},
	} {
		o := tt.def.New()
		fill(reflect.ValueOf(o).Elem(), 12)
		annotations := o.GetAnnotations()
		if annotations[corev1.MirrorPodAnnotationKey] = "x"; len(annotations) != 2 {
			t.Fatalf("%v", annotations)
		}
		before := o.DeepCopyObject()
		text, err := json.Marshal(tt.def.ForNodes.Show(o))
		if err != nil {
			t.Fatal(err)
		}
		var all map[string]any
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		got, want := paths("", all), append(slices.Clone(meta), tt.want...)
		for _, l := range [][]string{got, want} {
			slices.Sort(l)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %s nodes see\n%q, want\n%q", tt.def.Plural, got, want)
		}
		if !reflect.DeepEqual(o, before) {
			t.Errorf("to show one of %s changes it", tt.def.Plural)
		}
		for _, f := range tt.def.ForNodes.Fields {
			if tt.def.Fields[f] == nil {
				t.Errorf("%s cannot be selected by %s", tt.def.Plural, f)
			}
			// What a node may select by has the same value in what it is shown.
			if whole, shown := tt.def.Fields[f](o), tt.def.Fields[f](tt.def.ForNodes.Show(o)); whole != shown {
				t.Errorf("%s of %s is %q, and nodes are shown %q", f, tt.def.Plural, whole, shown)
			}
		}
		if own := tt.def.ForNodes.Own; own != "" && !slices.Contains(tt.def.ForNodes.Fields, own) {
			t.Errorf("%s is missing among the fields of %s", own, tt.def.Plural)
		}
	}
}
