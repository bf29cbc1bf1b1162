package schema

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// exampleObjects reads the fully populated objects that are published with the API types, of all kinds with embedded types.
func exampleObjects(t testing.TB) map[schema.GroupVersionKind]runtime.Object {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Skip("go list:", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "HEAD", "*.json"))
	if err != nil || len(files) == 0 {
		t.Skip("no example objects")
	}
	ty := newTypes()
	all := map[schema.GroupVersionKind]runtime.Object{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			continue // A kind that the scheme does not have.
		}
		name, err := scheme.Scheme.ToOpenAPIDefinitionName(*gvk)
		if err != nil {
			t.Fatal(err)
		}
		if kind, err := ty.kind(name); err != nil || kind == nil {
			continue
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			continue
		}
		m.SetManagedFields(nil)
		m.SetUID("")
		all[*gvk] = obj
	}
	return all
}

// managedFieldsWithoutTimes returns managedFields without times, which differ from run to run.
func managedFieldsWithoutTimes(t testing.TB, obj runtime.Object) string {
	t.Helper()
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	list := []metav1.ManagedFieldsEntry{}
	for _, e := range m.GetManagedFields() {
		e.Time = nil
		list = append(list, e)
	}
	slices.SortFunc(list, compareEntries) // The order of the entries depends on their times.
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// mutate changes some fields of a value at random: it clears them, replaces list elements or map entries, or writes a
// number or a word.
func mutate(r *rand.Rand, v reflect.Value, rate float64) {
	if !v.CanSet() || (converts(v.Type()) && v.Kind() != reflect.Pointer && v.Type() != reflect.TypeFor[metav1.Time]()) {
		return
	}
	if r.Float64() < rate && v.Kind() != reflect.Struct {
		switch v.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			v.SetZero()
		case reflect.String:
			v.SetString([]string{"", "x", "a/b", "é<&>\"\\", "longer text"}[r.IntN(5)])
		case reflect.Int32, reflect.Int64:
			v.SetInt(r.Int64N(5))
		case reflect.Bool:
			v.SetBool(r.IntN(2) == 0)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			mutate(r, v.Elem(), rate)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			if r.Float64() < rate {
				v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(r.Int64N(3), 0))))
			}
			return
		}
		for i := range v.NumField() {
			mutate(r, v.Field(i), rate)
		}
	case reflect.Slice:
		mutateSlice(r, v, rate)
	case reflect.Map:
		mutateMap(r, v, rate)
	}
}

func mutateSlice(r *rand.Rand, v reflect.Value, rate float64) {
	for i := range v.Len() {
		mutate(r, v.Index(i), rate)
	}
	if v.Len() > 0 && r.Float64() < rate {
		extra := reflect.New(v.Type().Elem()).Elem()
		extra.Set(v.Index(r.IntN(v.Len())))
		mutate(r, extra, 0.5)
		v.Set(reflect.Append(v, extra))
	}
}

func mutateMap(r *rand.Rand, v reflect.Value, rate float64) {
	if v.IsNil() || v.Type().Key().Kind() != reflect.String {
		return
	}
	for _, k := range v.MapKeys() {
		e := reflect.New(v.Type().Elem()).Elem()
		e.Set(v.MapIndex(k))
		mutate(r, e, rate)
		v.SetMapIndex(k, e)
		if r.Float64() < rate {
			v.SetMapIndex(reflect.ValueOf("new\t\"key\"").Convert(v.Type().Key()), e)
		}
		if r.Float64() < rate {
			v.SetMapIndex(k, reflect.Value{})
		}
	}
}

// TestFastEqualsLibrary tracks random writes of all kinds with the fast path and with the library, and compares each result;
// the environment variable SEED changes the writes. It also counts how often the fast path was taken, so that it cannot
// stop being used unnoticed.
func TestFastEqualsLibrary(t *testing.T) {
	o := New(scheme.Scheme, nil, nil)
	taken, all := 0, 0
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	r := rand.New(rand.NewPCG(1, seed))
	objects := exampleObjects(t)
	for _, gvk := range slices.SortedFunc(maps.Keys(objects),
		func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		example := objects[gvk]
		main := o.For(Target{Kind: gvk, Reset: []string{"status"}})
		status := o.For(Target{Kind: gvk, Subresource: "status", Reset: []string{"spec", "metadata.labels"}})
		for round := range 2 {
			var live runtime.Object
			empty, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			live = empty
			for step := range 5 {
				obj := example.DeepCopyObject()
				if step > 0 {
					obj = live.DeepCopyObject()
				}
				if step > 0 || round > 0 {
					mutate(r, reflect.ValueOf(obj).Elem(), []float64{0.02, 0.1, 0.01, 0}[(round+step)%4])
				}
				n, _ := meta.Accessor(obj)
				l, _ := meta.Accessor(live)
				n.SetManagedFields(l.GetManagedFields())
				m := main
				if step%3 == 2 {
					m = status
				}
				manager := []string{"kubectl", "controller", "", "kubelet"}[r.IntN(4)]
				slow := obj.DeepCopyObject()
				_, slowErr := m.slowUpdate(live, slow, manager)
				fast := obj.DeepCopyObject()
				all++
				if m.fast().update(&m.target, live, fast, manager) {
					taken++
					// The library fails if a key is missing anywhere in the object, even in fields that this kind of
					// write cannot change.
					if got, want := managedFieldsWithoutTimes(t, fast), managedFieldsWithoutTimes(t, slow); got != want && slowErr == nil {
						t.Fatalf("%s round %d step %d:\nfast    %s\nlibrary %s", gvk, round, step, got, want)
					}
				}
				n, _ = meta.Accessor(slow)
				n.SetUID("u")
				live = slow
			}
		}
	}
	t.Logf("fast way: %d of %d writes", taken, all)
	if taken < all*3/4 {
		t.Errorf("the fast way was taken for %d of %d writes only", taken, all)
	}
}

func FuzzParseSet(f *testing.F) {
	f.Add(`{"f:spec":{".":{},"f:a":{},"k:{\"name\":\"c\"}":{".":{},"f:name":{}}},"v:\"x\"":{}}`)
	f.Add(`{}`)
	f.Add(`{"f:":{".":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSet(text)
		if err != nil {
			return
		}
		if got := string(s.json(nil)); got != text {
			t.Errorf("parsed %q, wrote %q", text, got)
		}
	})
}

func podTemplate() corev1.PodTemplateSpec {
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.example/app:v1", ImagePullPolicy: corev1.PullIfNotPresent,
			Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
				{ContainerPort: 9090, Protocol: corev1.ProtocolTCP}},
			Env:                      []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "C", Value: "3"}},
			VolumeMounts:             []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container("web"), container("side")}, RestartPolicy: corev1.RestartPolicyAlways,
			DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler", SecurityContext: &corev1.PodSecurityContext{},
			TerminationGracePeriodSeconds: new(int64(30)),
			Volumes: []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func benchObjects() map[string]runtime.Object {
	name := metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"}}
	return map[string]runtime.Object{
		"ConfigMap": &corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"a": "1", "b": "2", "c": "3"}},
		"Deployment": &appsv1.Deployment{ObjectMeta: name, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: podTemplate(),
		}},
		"Pod": &corev1.Pod{ObjectMeta: name, Spec: podTemplate().Spec},
	}
}

// BenchmarkUpdate compares the fast path with the library for a create, for a write that changes one field, and for one
// that changes none.
func BenchmarkUpdate(b *testing.B) {
	o := New(scheme.Scheme, nil, nil)
	for kind, obj := range benchObjects() {
		gvks, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			b.Fatal(err)
		}
		m := o.For(Target{Kind: gvks[0], Reset: []string{"status"}})
		empty, err := scheme.Scheme.New(gvks[0])
		if err != nil {
			b.Fatal(err)
		}
		live := obj.DeepCopyObject()
		if _, err := m.Update(empty, live, "kubectl"); err != nil {
			b.Fatal(err)
		}
		l, _ := meta.Accessor(live)
		l.SetUID("u")
		next := live.DeepCopyObject()
		n, _ := meta.Accessor(next)
		n.SetLabels(map[string]string{"app": "other"})
		for _, c := range []struct {
			name      string
			from, to  runtime.Object
			manager   string
			keepOwner []metav1.ManagedFieldsEntry
		}{
			{"create", empty, obj, "kubectl", nil},
			{"change", live, next, "controller", l.GetManagedFields()},
			{"same", live, live.DeepCopyObject(), "controller", l.GetManagedFields()},
		} {
			for implementation, update := range map[string]func(a, b runtime.Object, m string) (runtime.Object, error){"fast": m.Update,
				"library": m.slowUpdate} {
				b.Run(kind+"/"+c.name+"/"+implementation, func(b *testing.B) {
					b.ReportAllocs()
					to, _ := meta.Accessor(c.to)
					for b.Loop() {
						to.SetManagedFields(c.keepOwner)
						if _, err := update(c.from, c.to, c.manager); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
