// Package clienttest is the conformance test of client.Client. The implementation in the server's process and the one
// over HTTPS both have to pass it.
package clienttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Run tests a client, which must have the permissions of an administrator. Every test works in a namespace of its own.
func Run(t *testing.T, c client.Client) {
	for _, test := range []struct {
		name string
		do   func(*suite)
	}{
		{"objects are written and read", (*suite).objects},
		{"errors are those of the server", (*suite).errors},
		{"subresources", (*suite).subresources},
		{"a view shows what was written", (*suite).views},
		{"events tell everything in order", (*suite).events},
		{"a part shows its scope", (*suite).parts},
		{"indexes follow", (*suite).indexes},
		{"a write set has the revisions to wait for", (*suite).writeSets},
		{"readers end with their context", (*suite).endings},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &suite{T: t, c: c, ns: "t-" + strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' {
					return r
				}
				return '-'
			}, test.name)}
			s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})
			test.do(s)
		})
	}
}

type suite struct {
	*testing.T
	c  client.Client
	ns string
}

func (s *suite) create(o kind.Object) kind.Object {
	s.Helper()
	of := gr.ConfigMaps
	switch o.(type) {
	case *corev1.Namespace:
		of = gr.Namespaces
	case *corev1.Pod:
		of = gr.Pods
	case *corev1.Node:
		of = gr.Nodes
	}
	out, err := s.c.Create(s.Context(), of, o)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func (s *suite) config(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name, Labels: map[string]string{"v": value}},
		Data: map[string]string{"v": value}}
}

func (s *suite) put(name, value string) {
	s.Helper()
	if _, err := s.c.Update(s.Context(), gr.ConfigMaps, s.config(name, value), ""); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) remove(name string) {
	s.Helper()
	if err := s.c.Delete(s.Context(), gr.ConfigMaps, s.ns, name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: corev1.PodSpec{
		NodeName: node, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
}

// account creates the service account that Pods need, unless it exists.
func (s *suite) account() {
	s.Helper()
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "default"}}
	if _, err := s.c.Create(s.Context(), gr.ServiceAccounts, a); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
}

func (s *suite) objects() {
	made := s.create(s.config("a", "1")).(*corev1.ConfigMap)
	if made.UID == "" || made.ResourceVersion == "" || made.Kind != "ConfigMap" || made.APIVersion != "v1" {
		s.Errorf("made is %+v", made)
	}
	o, err := s.c.Get(s.Context(), gr.ConfigMaps, s.ns, "a", "")
	if err != nil || o.(*corev1.ConfigMap).Data["v"] != "1" {
		s.Errorf("read is %+v (%v)", o, err)
	}
	made.Data["v"] = "2"
	next, err := s.c.Update(s.Context(), gr.ConfigMaps, made, "")
	if err != nil || next.(*corev1.ConfigMap).Data["v"] != "2" || next.GetUID() != o.GetUID() {
		s.Errorf("updated is %+v (%v)", next, err)
	}
	if !slices.ContainsFunc(next.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "proa" }) {
		s.Errorf("nobody owns the fields: %+v", next.GetManagedFields())
	}
	s.create(s.config("b", "1"))
	s.remove("a")
	if _, err := s.c.Get(s.Context(), gr.ConfigMaps, s.ns, "a", ""); !apierrors.IsNotFound(err) {
		s.Errorf("after the deletion: %v", err)
	}
	if err := s.c.DeleteAll(s.Context(), gr.ConfigMaps, s.ns, fields.Set{"metadata.name": "c"}, metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
	if _, err := s.c.Get(s.Context(), gr.ConfigMaps, s.ns, "b", ""); err != nil {
		s.Errorf("after the deletion of others: %v", err)
	}
	if err := s.c.DeleteAll(s.Context(), gr.ConfigMaps, s.ns, fields.Set{"data.x": "c"},
		metav1.DeleteOptions{}); !apierrors.IsBadRequest(err) {
		s.Errorf("by a field that cannot be selected by: %v", err)
	}
	if err := s.c.DeleteAll(s.Context(), gr.ConfigMaps, s.ns, nil, metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
	if _, err := s.c.Get(s.Context(), gr.ConfigMaps, s.ns, "b", ""); !apierrors.IsNotFound(err) {
		s.Errorf("after the deletion of all: %v", err)
	}
}

func (s *suite) errors() {
	ctx := s.Context()
	old := s.create(s.config("a", "1"))
	s.put("a", "2")
	for _, test := range []struct {
		name string
		is   func(error) bool
		do   func() error
	}{
		{"not found", apierrors.IsNotFound, func() error { _, err := s.c.Get(ctx, gr.ConfigMaps, s.ns, "x", ""); return err }},
		{"there already", apierrors.IsAlreadyExists,
			func() error { _, err := s.c.Create(ctx, gr.ConfigMaps, s.config("a", "1")); return err }},
		{"changed meanwhile", apierrors.IsConflict, func() error { _, err := s.c.Update(ctx, gr.ConfigMaps, old, ""); return err }},
		{"invalid", apierrors.IsInvalid, func() error { _, err := s.c.Create(ctx, gr.ConfigMaps, s.config("A", "1")); return err }},
		{"deleted by nobody", apierrors.IsNotFound,
			func() error { return s.c.Delete(ctx, gr.ConfigMaps, s.ns, "x", metav1.DeleteOptions{}) }},
		{"another one was deleted", apierrors.IsConflict, func() error {
			return s.c.Delete(ctx, gr.ConfigMaps, s.ns, "a", *metav1.NewPreconditionDeleteOptions("other"))
		}},
	} {
		if err := test.do(); !test.is(err) {
			s.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := s.c.Get(ctx, gr.Pods.WithVersion("v9").GroupVersion().WithResource("nothing").GroupResource(), "", "x", ""); err == nil {
		s.Error("a resource that there is not was read")
	}
	if _, err := s.c.Get(ctx, gr.ConfigMaps, s.ns, "a", "nothing"); err == nil {
		s.Error("a subresource that there is not was read")
	}
}

func (s *suite) subresources() {
	ctx := s.Context()
	s.account()
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})
	p := s.create(s.pod("p", "")).(*corev1.Pod)
	b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "p"},
		Target: corev1.ObjectReference{Kind: "Node", Name: s.ns}}
	if out, err := s.c.Act(ctx, gr.Pods, s.ns, "p", "binding", b); err != nil || out != nil {
		s.Errorf("bound: %v (%v)", out, err)
	}
	p.ResourceVersion = ""
	p.Status.Phase = corev1.PodRunning
	p.Spec.Containers[0].Image = "another" // an update of the status does not change it
	o, err := s.c.Update(ctx, gr.Pods, p, "status")
	if err != nil {
		s.Fatal(err)
	}
	if got := o.(*corev1.Pod); got.Status.Phase != corev1.PodRunning || got.Spec.NodeName != s.ns || got.Spec.Containers[0].Image != "i" {
		s.Errorf("the status of %+v", got)
	}
	zero := int64(0)
	if err := s.c.Delete(ctx, gr.Pods, s.ns, "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		s.Error(err)
	}
}

func names(all func(func(kind.Object) bool)) (out []string) {
	for o := range all {
		out = append(out, o.GetName())
	}
	return out
}

func (s *suite) view(scope client.Scope) client.View {
	s.Helper()
	v, err := s.c.Part(s.Context(), gr.ConfigMaps, scope)
	if err != nil {
		s.Fatal(err)
	}
	return v
}

func (s *suite) reach(v client.View) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.Context(), time.Minute)
	defer stop()
	if err := v.Reach(ctx, 0); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) views() {
	s.create(s.config("b", "1"))
	v, err := s.c.View(s.Context(), gr.ConfigMaps)
	if err != nil {
		s.Fatal(err)
	}
	if got := names(v.List(s.ns)); !slices.Contains(got, "b") {
		s.Errorf("at once it shows %v", got)
	}
	for i := range 20 {
		s.create(s.config(fmt.Sprintf("c%02d", i), "1"))
		s.put("b", fmt.Sprint(i))
		s.reach(v)
		o, found := v.Get(s.ns, "b")
		if !found || o.(*corev1.ConfigMap).Data["v"] != fmt.Sprint(i) {
			s.Fatalf("after the write %d it shows %v", i, o)
		}
		if _, found := v.Get(s.ns, fmt.Sprintf("c%02d", i)); !found {
			s.Fatalf("after the creation %d it does not show it", i)
		}
		s.remove(fmt.Sprintf("c%02d", i))
		s.reach(v)
		if o, found := v.Get(s.ns, fmt.Sprintf("c%02d", i)); found {
			s.Fatalf("after the deletion %d it shows %v", i, o)
		}
	}
	s.create(s.config("a", "1"))
	s.reach(v)
	if got := fmt.Sprint(names(v.List(s.ns))); !strings.Contains(got, "a b") {
		s.Errorf("in order it shows %s", got)
	}
}

func (s *suite) events() {
	s.create(s.config("a", "1"))
	v := s.view(client.Scope{Namespace: s.ns})
	ctx, stop := context.WithTimeout(s.Context(), time.Minute)
	defer stop()
	var got []string
	step := 0
	for ev := range v.Events(ctx) {
		if ev.Gap || strings.HasPrefix(ev.Object.GetName(), "kube-root-ca") {
			continue
		}
		text := ev.Object.GetName() + "=" + ev.Object.(*corev1.ConfigMap).Data["v"]
		if ev.Old != nil {
			text = ev.Old.(*corev1.ConfigMap).Data["v"] + ">" + text
		}
		if ev.Deleted {
			text = "-" + text
		}
		if ev.Rev == 0 {
			s.Errorf("%s has no revision", text)
		}
		got = append(got, text)
		switch step++; step {
		case 1:
			s.put("a", "2")
		case 2:
			s.create(s.config("b", "1"))
		case 3:
			s.remove("a")
		case 4:
			s.put("b", "3")
		case 5:
			stop()
		}
	}
	if want := "[a=1 1>a=2 b=1 -2>a=2 1>b=3]"; fmt.Sprint(got) != want {
		s.Errorf("events %v, want %s", got, want)
	}
}

// named tests a part with the objects of one name in all namespaces.
func (s *suite) named(name string) {
	s.Helper()
	v := s.view(client.Scope{Name: name})
	if got := fmt.Sprint(names(v.List(s.ns))); got != "["+name+"]" {
		s.Errorf("of a name in all namespaces: %s", got)
	}
	ctx, stop := context.WithTimeout(s.Context(), time.Minute)
	defer stop()
	seen := 0
	for ev := range v.Events(ctx) {
		if ev.Gap || ev.Object.GetNamespace() != s.ns {
			continue
		}
		if ev.Object.GetName() != name {
			s.Errorf("%s shows among those named %s", ev.Object.GetName(), name)
		}
		if seen++; seen == 2 {
			break
		}
		s.put("a", "2")
		s.put(name, "2")
	}
	if seen != 2 {
		s.Errorf("%d events of %s, want its present state and one change", seen, name)
	}
}

func (s *suite) parts() {
	s.account()
	s.create(s.config("a", "1"))
	s.create(s.config("b", "1"))
	one, all := s.view(client.Scope{Namespace: s.ns, Name: "a"}), s.view(client.Scope{Namespace: s.ns})
	if got := fmt.Sprint(names(one.List(""))); got != "[a]" {
		s.Errorf("one of a name: %s", got)
	}
	if _, found := one.Get(s.ns, "b"); found {
		s.Error("another one is in the part")
	}
	s.named("b")
	s.remove("a")
	s.reach(one)
	s.reach(all)
	if _, found := one.Get(s.ns, "a"); found {
		s.Error("it is there after its deletion")
	}
	if got := names(all.List("")); slices.Contains(got, "a") || !slices.Contains(got, "b") {
		s.Errorf("all of a namespace: %v", got)
	}
	for _, n := range []string{"one", "two"} {
		s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-" + n}})
		s.create(s.pod("p-"+n, s.ns+"-"+n))
	}
	pods, err := s.c.Part(s.Context(), gr.Pods, client.Scope{Node: s.ns + "-one"})
	if err != nil {
		s.Fatal(err)
	}
	if got := fmt.Sprint(names(pods.List(""))); got != "[p-one]" {
		s.Errorf("the Pods of a node: %s", got)
	}
	s.create(s.pod("q-one", s.ns+"-one"))
	s.reach(pods)
	if got := fmt.Sprint(names(pods.List(s.ns))); got != "[p-one q-one]" {
		s.Errorf("the Pods of a node later: %s", got)
	}
}

func (s *suite) indexes() {
	by := client.Index{Name: "test-v", Values: func(o kind.Object) []string {
		if v := o.GetLabels()["v"]; v != "" {
			return []string{o.GetNamespace() + "/" + v}
		}
		return nil
	}}
	s.create(s.config("b", "1"))
	v := s.view(client.Scope{Namespace: s.ns})
	look := func(want string) {
		s.Helper()
		s.reach(v)
		if got := fmt.Sprintf("%v %v", names(v.By(by, s.ns+"/1")), names(v.By(by, s.ns+"/2"))); got != want {
			s.Errorf("found are %s, want %s", got, want)
		}
	}
	look("[b] []")
	s.create(s.config("a", "1"))
	look("[a b] []")
	s.put("b", "2")
	look("[a] [b]")
	s.remove("a")
	look("[] [b]")
}

func (s *suite) writeSets() {
	v := s.view(client.Scope{Namespace: s.ns})
	writes := &client.WriteSet{}
	ctx := client.WithWriteSet(s.Context(), writes)
	if _, err := s.c.Create(ctx, gr.ConfigMaps, s.config("a", "1")); err != nil {
		s.Fatal(err)
	}
	rev, wrote := writes.Revisions()[gr.ConfigMaps]
	if !wrote {
		s.Fatal("the write is not in the write set")
	}
	if err := v.Reach(ctx, rev); err != nil {
		s.Fatal(err)
	}
	if _, found := v.Get(s.ns, "a"); !found {
		s.Error("the view does not show the write it has reached")
	}
	if err := s.c.Delete(ctx, gr.ConfigMaps, s.ns, "a", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	if err := v.Reach(ctx, writes.Revisions()[gr.ConfigMaps]); err != nil {
		s.Fatal(err)
	}
	if _, found := v.Get(s.ns, "a"); found {
		s.Error("the view shows what is deleted")
	}
}

func (s *suite) endings() {
	v := s.view(client.Scope{Namespace: s.ns})
	ctx, stop := context.WithCancel(s.Context())
	stop()
	for range v.Events(ctx) {
		s.Error("an event after the end")
	}
	if err := v.Reach(ctx, 1<<60); err == nil {
		s.Error("a revision that there is not was reached")
	}
	if _, err := s.c.Get(ctx, gr.ConfigMaps, s.ns, "a", ""); err == nil {
		s.Error("something was read after the end")
	}
}
