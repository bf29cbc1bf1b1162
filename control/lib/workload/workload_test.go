package workload

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/kind"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(t *testing.T, age string) metav1.Time {
	d, err := time.ParseDuration(age)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewTime(now.Add(-d))
}

func parsePod(t *testing.T, line string) *corev1.Pod {
	t.Helper()
	fields := strings.Fields(line)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fields[0]}}
	for key, value := range textcase.Options(fields[1:]) {
		switch key {
		case "node":
			p.Spec.NodeName = value
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "ready":
			c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
			if value != "?" {
				c.LastTransitionTime = ago(t, value)
			}
			p.Status.Conditions = append(p.Status.Conditions, c)
		case "age":
			p.CreationTimestamp = ago(t, value)
		case "cost":
			p.Annotations = map[string]string{corev1.PodDeletionCost: value}
		case "uid":
			p.UID = types.UID(value)
		case "restarts":
			n, _ := strconv.Atoi(value)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a"}, {Name: "b", RestartCount: int32(n)}}
		case "sidecar":
			n, _ := strconv.Atoi(value)
			p.Spec.InitContainers = []corev1.Container{{Name: "once"},
				{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "once", RestartCount: 100 - int32(n)},
				{Name: "side", RestartCount: int32(n)}}
		default:
			t.Fatalf("field %q", key)
		}
	}
	return p
}

func names[T kind.Object](objects []T) string {
	var out []string
	for _, o := range objects {
		out = append(out, o.GetName())
	}
	return strings.Join(out, " ")
}

func TestToDelete(t *testing.T) {
	textcase.Check(t, "testdata/rank.txt", func(t *testing.T, lines []string) {
		var pods, related []*corev1.Pod
		checked := false
		for _, line := range lines {
			if rest, ok := strings.CutPrefix(line, "delete "); ok {
				count, want, _ := strings.Cut(rest, ": ")
				n, _ := strconv.Atoi(count)
				before := names(pods)
				if got := names(ToDelete(pods, append(related, pods...), n, now)); got != want {
					t.Errorf("chose %q, want %q", got, want)
				}
				if names(pods) != before {
					t.Error("the order of the Pods handed in was changed")
				}
				checked = true
				continue
			}
			if rest, ok := strings.CutPrefix(line, "related "); ok {
				related = append(related, parsePod(t, rest))
				continue
			}
			pods = append(pods, parsePod(t, line))
		}
		if !checked {
			t.Fatal("no delete line")
		}
	})
}

func TestCompareActive(t *testing.T) {
	var pods []*corev1.Pod
	for _, line := range []string{
		"e node=n phase=Running ready=70m", "f node=n phase=Running ready=71m", "d node=n phase=Running ready=1h cost=9",
		"c node=n phase=Running restarts=1 age=9h",
		"b node=n phase=Pending", "a", "g node=n phase=Running ready=71m age=2h",
	} {
		pods = append(pods, parsePod(t, line))
	}
	slices.SortStableFunc(pods, CompareActive)
	if got := names(pods); got != "a b c d e f g" {
		t.Errorf("order %s", got)
	}
}

func TestClaim(t *testing.T) {
	textcase.Check(t, "testdata/claim.txt", func(t *testing.T, lines []string) {
		owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: "ns", UID: "me"}}
		cl := &Claimant[*corev1.Pod]{Owner: owner, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
			Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}
		var pods []*corev1.Pod
		want := map[string]string{}
		for _, line := range lines {
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "owner":
				owner.DeletionTimestamp = new(metav1.NewTime(now))
			case "match":
				cl.Match = func(p *corev1.Pod) bool { return strings.Contains(rest, p.Name) }
			case "owned", "adopt", "release":
				want[word] = rest
			case "nothing":
			default:
				pods = append(pods, parseClaimed(t, line))
			}
		}
		got := cl.Sort(slices.Values(pods))
		for what, list := range map[string][]*corev1.Pod{"owned": got.Owned, "adopt": got.Adopt, "release": got.Release} {
			if names(list) != want[what] {
				t.Errorf("%s: %q, want %q", what, names(list), want[what])
			}
		}
	})
}

func parseClaimed(t *testing.T, line string) *corev1.Pod {
	fields := strings.Fields(line)
	set, err := labels.ConvertSelectorToLabelsMap(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fields[0], Namespace: "ns", Labels: set}}
	if fields[1] != "-" {
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fields[1]), Controller: new(true)}}
	}
	for _, f := range fields[3:] {
		switch f {
		case "deleting":
			p.DeletionTimestamp = new(metav1.NewTime(now))
		case "elsewhere":
			p.Namespace = "other"
		}
	}
	return p
}

func TestAdoptAndReleaseKeepOtherOwners(t *testing.T) {
	owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: "ns", UID: "me"}}
	cl := &Claimant[*corev1.Pod]{Owner: owner, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Finalizers: []string{"track"}}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "x", UID: "x"}
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: "me"}, other},
		Finalizers: []string{"keep"}}}
	ownRef := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "me", Controller: new(true),
		BlockOwnerDeletion: new(true)}

	adopted := cl.adopted(orphan)
	if want := []metav1.OwnerReference{other, ownRef}; !reflect.DeepEqual(adopted.GetOwnerReferences(), want) {
		t.Errorf("adopted has owners %+v", adopted.GetOwnerReferences())
	}
	if want := []string{"keep", "track"}; !slices.Equal(adopted.GetFinalizers(), want) {
		t.Errorf("adopted has finalizers %v", adopted.GetFinalizers())
	}
	released := cl.released(adopted.(*corev1.Pod))
	if want := []metav1.OwnerReference{other}; !reflect.DeepEqual(released.GetOwnerReferences(), want) {
		t.Errorf("released has owners %+v", released.GetOwnerReferences())
	}
	if want := []string{"keep"}; !slices.Equal(released.GetFinalizers(), want) {
		t.Errorf("released has finalizers %v", released.GetFinalizers())
	}
	if len(orphan.OwnerReferences) != 2 || len(orphan.Finalizers) != 1 || len(adopted.GetOwnerReferences()) != 2 {
		t.Error("the object handed in was changed")
	}
}

func TestPodFromTemplate(t *testing.T) {
	owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}}
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: "ignored", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			Finalizers: []string{"f"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x"}}},
	}
	p := Pod(template, owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", GenerateName: "web-", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			Finalizers: []string{"f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u",
				Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x"}}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v", p)
	}
	p.Labels["a"], p.Spec.Containers[0].Name, p.Finalizers[0] = "changed", "changed", "changed"
	if template.Labels["a"] != "b" || template.Spec.Containers[0].Name != "x" || template.Finalizers[0] != "f" {
		t.Error("the Pod shares memory with the template")
	}
	if got := PodNamePrefix("A_b"); got != "A_b" {
		t.Errorf("a name that no Pod can have gets no dash: %s", got)
	}
}

func TestAvailability(t *testing.T) {
	type result struct {
		ready, available bool
		next             time.Duration
	}
	for _, c := range []struct {
		pod  string
		min  int32
		want result
	}{
		{"p phase=Running", 0, result{}},
		{"p ready=0s", 0, result{true, true, 0}},
		{"p ready=0s", 10, result{true, false, 10 * time.Second}},
		{"p ready=9s", 10, result{true, false, time.Second}},
		{"p ready=10s", 10, result{true, true, 0}},
		{"p ready=?", 10, result{true, false, 0}},
		{"p ready=?", 0, result{true, true, 0}},
	} {
		p := parsePod(t, c.pod)
		got := result{IsReady(p), IsAvailable(p, c.min, now), NextAvailable([]*corev1.Pod{p}, c.min, now)}
		if got != c.want {
			t.Errorf("%s, at least %d s: %+v, want %+v", c.pod, c.min, got, c.want)
		}
	}
	a, b := parsePod(t, "a ready=3s"), parsePod(t, "b ready=6s")
	if got := NextAvailable([]*corev1.Pod{a, b}, 10, now); got != 4*time.Second {
		t.Errorf("next in %v, want the time of the Pod that is ready for longer", got)
	}
}

func TestPodStates(t *testing.T) {
	for _, c := range []struct {
		phase                         corev1.PodPhase
		deleting                      bool
		active, terminal, terminating bool
	}{
		{"", false, true, false, false},
		{corev1.PodRunning, false, true, false, false},
		{corev1.PodRunning, true, false, false, true},
		{corev1.PodFailed, false, false, true, false},
		{corev1.PodSucceeded, true, false, true, false},
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: c.phase}}
		if c.deleting {
			p.DeletionTimestamp = new(metav1.NewTime(now))
		}
		if IsActive(p) != c.active || IsTerminal(p) != c.terminal || IsTerminating(p) != c.terminating {
			t.Errorf("%+v: active %v, terminal %v, terminating %v", c, IsActive(p), IsTerminal(p), IsTerminating(p))
		}
	}
}

func TestSlowStart(t *testing.T) {
	for _, c := range []struct{ n, failAt, calls, succeeded int }{
		{0, -1, 0, 0}, {1, -1, 1, 1}, {10, -1, 10, 10}, {10, 0, 1, 0}, {10, 1, 3, 2}, {10, 5, 7, 6}, {10, 9, 10, 9}, {500, -1, 500, 500},
	} {
		var mu sync.Mutex
		seen := map[int]bool{}
		ok, err := SlowStart(c.n, func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			seen[i] = true
			if i == c.failAt {
				return fmt.Errorf("no %d", i)
			}
			return nil
		})
		if len(seen) != c.calls || ok != c.succeeded || (err != nil) != (c.failAt >= 0) {
			t.Errorf("%+v: %d calls, %d succeeded, %v", c, len(seen), ok, err)
		}
	}
	ok, err := Parallel(5, func(i int) error {
		if i%2 == 0 {
			return errors.New(strconv.Itoa(i))
		}
		return nil
	})
	if ok != 2 || err == nil || err.Error() != "0" {
		t.Errorf("together: %d, %v", ok, err)
	}
}

func TestWakesOwners(t *testing.T) {
	owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "x", Controller: new(true)}}}}
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	relabelled := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "c"}}}
	for _, c := range []struct {
		what     string
		old, now kind.Object
		want     bool
	}{
		{"a new orphan", nil, orphan, true},
		{"an orphan deleted", orphan, nil, false},
		{"an owned one deleted", owned, nil, true},
		{"an orphan's status", orphan, orphan, false},
		{"an orphan's labels", orphan, relabelled, true},
		{"an owned one's status", owned, owned, true},
		{"orphaned", owned, orphan, true},
		{"adopted", orphan, owned, true},
	} {
		if got := WakesOwners(c.old, c.now); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestHash(t *testing.T) {
	template := func() *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "c", Image: "i", ImagePullPolicy: corev1.PullAlways, TerminationMessagePath: "/dev/termination-log",
					TerminationMessagePolicy: corev1.TerminationMessageReadFile,
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"),
						"memory": resource.MustParse("1Gi")}},
				}},
				RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
				TerminationGracePeriodSeconds: new(int64(30)), SecurityContext: &corev1.PodSecurityContext{},
			},
		}
	}
	hash := func(t *testing.T, p *corev1.PodTemplateSpec, collisions *int32) string {
		h, err := Hash(p, collisions)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := hash(t, template(), nil)
	// The hash that the controller of Kubernetes 1.37.1 gives this template. A new field of the Pod's types changes it in both.
	if first != "785d5f5bcc" {
		t.Errorf("hash %s", first)
	}
	equal := template()
	cpu := equal.Spec.Containers[0].Resources.Requests["cpu"]
	_ = cpu.String() // caches the text
	equal.Spec.Containers[0].Resources.Requests["cpu"] = cpu
	equal.Annotations, equal.Spec.Volumes = map[string]string{}, []corev1.Volume{}
	if got := hash(t, equal, nil); got != first {
		t.Errorf("an equal template with empty fields: %s, want %s", got, first)
	}
	seen := map[string]bool{first: true}
	for _, n := range []int32{0, 1, 2} {
		seen[hash(t, template(), &n)] = true
	}
	other := template()
	other.Spec.Containers[0].Image = "j"
	seen[hash(t, other, nil)] = true
	if len(seen) != 5 {
		t.Errorf("hashes are not distinct: %v", seen)
	}
}
