package revision

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/internal/textcase"
)

func TestHistory(t *testing.T) {
	textcase.Check(t, "testdata/history.txt", func(t *testing.T, lines []string) {
		n := len(lines) - 2
		command, want := strings.Fields(lines[n]), strings.TrimPrefix(lines[n+1], "=> ")
		var all []*appsv1.ControllerRevision
		if n > 0 {
			all = parse(t, lines[0])
		}
		Sort(all)
		var got string
		switch command[0] {
		case "find":
			got = Find(all, []byte(command[1])).String()
		case "keep":
			n, _ := strconv.Atoi(command[1])
			if got = names(ToDelete(all, n, func(r *appsv1.ControllerRevision) bool { return r.Labels["live"] != "" })); got == "" {
				got = "nothing"
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func parse(t *testing.T, line string) (out []*appsv1.ControllerRevision) {
	t.Helper()
	for i, word := range strings.Fields(line) {
		number, content, found := strings.Cut(word, ":")
		n, err := strconv.ParseInt(number, 10, 64)
		if !found || err != nil {
			t.Fatalf("%q is no revision", word)
		}
		content, live := strings.CutSuffix(content, "*")
		r := &appsv1.ControllerRevision{Revision: n, Data: runtime.RawExtension{Raw: []byte(content)}}
		r.Name, r.CreationTimestamp = word, metav1.NewTime(time.Unix(int64(i), 0))
		if live {
			r.Labels = map[string]string{"live": "yes"}
		}
		out = append(out, r)
	}
	return out
}

func names(all []*appsv1.ControllerRevision) string {
	var out []string
	for _, r := range all {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

func (f Found) String() string {
	out := "new " + strconv.FormatInt(f.Number, 10)
	if f.Current != nil {
		out = fmt.Sprintf("%s as %d", f.Current.Name, f.Number)
	}
	if len(f.Twins) > 0 {
		out += ", twins " + names(f.Twins)
	}
	if len(f.Others) > 0 {
		out += ", others " + names(f.Others)
	}
	return out
}

func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1<<53 + 1)),
			Containers: []corev1.Container{{Name: "c", Image: image, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")},
			}}},
		},
	}
}

// TestPatch checks that patches are the bytes that upstream stores, so that the history of a migrated cluster stays valid.
func TestPatch(t *testing.T) {
	got, err := Patch(template("i:1"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},` +
		`"spec":{"containers":[{"image":"i:1","name":"c","resources":{"requests":{"cpu":"1"}}}],"terminationGracePeriodSeconds":9007199254740993}}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRestore checks that only the template is restored.
func TestRestore(t *testing.T) {
	patch, err := Patch(template("i:1"))
	if err != nil {
		t.Fatal(err)
	}
	owner := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"},
		Spec:       appsv1.DaemonSetSpec{MinReadySeconds: 7, Template: *template("i:2")},
	}
	owner.Spec.Template.Spec.Containers = append(owner.Spec.Template.Spec.Containers, corev1.Container{Name: "more"})
	owner.Spec.Template.Annotations = map[string]string{"more": "yes"}
	then, err := Restore(owner, &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: patch}}, &appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Patch(&then.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(patch) || then.Spec.MinReadySeconds != 7 || then.UID != "u" {
		t.Errorf("got %s of %+v", again, then)
	}
	if owner.Spec.Template.Spec.Containers[0].Image != "i:2" {
		t.Error("the owner itself was changed")
	}
	if _, err := Restore(owner, &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte("nonsense")}},
		&appsv1.DaemonSet{}); err == nil {
		t.Error("nonsense was restored")
	}
}

func TestHash(t *testing.T) {
	data := []byte(`{"spec":{}}`)
	plain, zero, one := Hash(data, nil), Hash(data, new(int32(0))), Hash(data, new(int32(1)))
	if plain == zero || zero == one || plain == one {
		t.Errorf("the count makes no difference: %s %s %s", plain, zero, one)
	}
	if want := "6d4c5b5d8d"; plain != want {
		t.Errorf("got %s, want %s", plain, want)
	}
}

func TestName(t *testing.T) {
	if got := Name("web", "x"); got != "web-x" {
		t.Error(got)
	}
	if got := Name(strings.Repeat("a", 240), "0123456789"); len(got) != 234 || !strings.HasSuffix(got, "a-0123456789") {
		t.Error(got)
	}
}

func TestNew(t *testing.T) {
	owner := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u",
		Annotations: map[string]string{"why": "so"}}}
	labels := map[string]string{"app": "web"}
	r := New(owner, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "web-1", WithLabel(labels, HashLabel, "1"), []byte("{}"))
	if r.Namespace != "ns" || r.Name != "web-1" || r.Labels["app"] != "web" || r.Labels[HashLabel] != "1" || r.Annotations["why"] != "so" ||
		!metav1.IsControlledBy(r, owner) {
		t.Errorf("%+v", r)
	}
	if len(labels) != 1 {
		t.Error("the owner's labels were changed")
	}
}

func TestWakesOwners(t *testing.T) {
	owner := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}}
	owned := New(owner, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "r", nil, nil)
	orphan := &appsv1.ControllerRevision{}
	if WakesOwners(nil, owned) {
		t.Error("a new revision of an owner wakes it")
	}
	if !WakesOwners(nil, orphan) || !WakesOwners(owned, nil) || !WakesOwners(owned, owned) || !WakesOwners(owned, orphan) {
		t.Error("a change that must wake the owner does not")
	}
	if WakesOwners(orphan, nil) {
		t.Error("the deletion of a revision without an owner wakes an owner")
	}
}
