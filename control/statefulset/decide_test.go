package statefulset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/internal/textcase"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestDecide runs cases: a name, the state of a set, "=>", and the plan.
func TestDecide(t *testing.T) {
	for _, file := range []string{"testdata/scale.txt", "testdata/update.txt", "testdata/claims.txt"} {
		textcase.Decide(t, file, "=>", func(t *testing.T, sees string) string {
			s := parse(t, sees)
			p := decide(s)
			for _, stage := range p.stages {
				for i := range stage.steps {
					if st := &stage.steps[i]; st.verb == create {
						st.pod = s.newPod(ordinal(s.set, st.pod))
					}
				}
			}
			completeUpdate(s.set, &p.status)
			return p.String()
		})
	}
}

// parse reads the state of a set:
//
//	set [replicas=N] [start=N] [parallel] [ondelete] [rolling] [partition=N] [max=N|N%] [minready=N] [claims=a,b]
//	    [scaled=delete] [deleted=delete] [deleting] [current=REV] [update=REV] [count=N]
//	pod NAME REV ready|ready=AGE|running|pending|failed|succeeded [deleting] [anonymous] [unmounted]
//	claim NAME [deleting] [owner=set|pod|oldset|oldpod|other|plain]...
func parse(t *testing.T, text string) *state {
	t.Helper()
	s := &state{now: noon, current: version{name: "a"}, update: version{name: "a"}}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	s.claim = func(name string) *corev1.PersistentVolumeClaim { return claims[name] }
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); f[0] {
		case "set":
			parseSet(t, s, f[1:])
		case "pod":
			s.pods = append(s.pods, parsePod(t, s.set, f[1:]))
		case "claim":
			claims[f[1]] = parseClaim(t, s.set, f[1:])
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	for _, v := range []*version{&s.current, &s.update} {
		v.set = s.set.DeepCopy()
		v.set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: v.name}}
	}
	return s
}

func parseSet(t *testing.T, s *state, words []string) {
	t.Helper()
	rolling := &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0)), MaxUnavailable: new(intstr.FromInt32(1))}
	s.set = &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-web", Generation: 2},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), ServiceName: "svc",
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: rolling},
			PodManagementPolicy:  appsv1.OrderedReadyPodManagement,
			RevisionHistoryLimit: new(int32(10)),
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	s.set.Spec.Template.Labels = map[string]string{"app": "web"}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "replicas":
			s.set.Spec.Replicas = new(int32(n))
		case "start":
			s.set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(n)}
		case "parallel":
			s.set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		case "ondelete":
			s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		case "rolling": // without details
			s.set.Spec.UpdateStrategy.RollingUpdate = nil
		case "partition":
			rolling.Partition = new(int32(n))
		case "max":
			rolling.MaxUnavailable = new(intstr.Parse(value))
		case "minready":
			s.set.Spec.MinReadySeconds = int32(n)
		case "claims":
			for name := range strings.SplitSeq(value, ",") {
				s.set.Spec.VolumeClaimTemplates = append(s.set.Spec.VolumeClaimTemplates,
					corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		case "scaled":
			s.set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		case "deleted":
			s.set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		case "deleting":
			s.set.DeletionTimestamp = new(metav1.NewTime(noon))
		case "current":
			s.current.name = value
		case "update":
			s.update.name = value
		case "count":
			s.set.Status.CurrentReplicas = int32(n)
		default:
			t.Fatalf("set: unknown word %q", w)
		}
	}
}

func parsePod(t *testing.T, set *appsv1.StatefulSet, words []string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: words[0], UID: types.UID("uid-" + words[0]), Labels: map[string]string{"app": "web"},
	}}
	n := ordinal(set, pod)
	setIdentityLabels(pod, n)
	mountClaims(set, pod, n)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = words[1]
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "ready":
			age, err := time.ParseDuration(value)
			if err != nil {
				age = time.Hour
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(noon.Add(-age))}}
		case "running":
			pod.Status.Phase = corev1.PodRunning
		case "pending":
			pod.Status.Phase = corev1.PodPending
		case "failed":
			pod.Status.Phase = corev1.PodFailed
		case "succeeded":
			pod.Status.Phase = corev1.PodSucceeded
		case "deleting":
			pod.DeletionTimestamp = new(metav1.NewTime(noon))
		case "anonymous":
			delete(pod.Labels, appsv1.StatefulSetPodNameLabel)
		case "unmounted":
			pod.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "tmp"}}
		default:
			t.Fatalf("pod: unknown word %q", w)
		}
	}
	return pod
}

func parseClaim(t *testing.T, set *appsv1.StatefulSet, words []string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: words[0]}}
	_, number, _ := strings.Cut(words[0], "-web-")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-" + number, UID: types.UID("uid-web-" + number)}}
	for _, w := range words[1:] {
		var ref metav1.OwnerReference
		switch w {
		case "deleting":
			claim.DeletionTimestamp = new(metav1.NewTime(noon))
			continue
		case "owner=set":
			ref = *metav1.NewControllerRef(set, gvk)
		case "owner=oldset":
			ref = *metav1.NewControllerRef(set, gvk)
			ref.UID = "uid-old"
		case "owner=plain":
			ref = *metav1.NewControllerRef(set, gvk)
			ref.Controller = nil
		case "owner=pod":
			ref = *metav1.NewControllerRef(pod, podKind)
		case "owner=oldpod":
			ref = *metav1.NewControllerRef(pod, podKind)
			ref.UID = "uid-old"
		case "owner=other":
			ref = *metav1.NewControllerRef(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "uid-other"}}, podKind)
		default:
			t.Fatalf("claim: unknown word %q", w)
		}
		claim.OwnerReferences = append(claim.OwnerReferences, ref)
	}
	return claim
}

func (p plan) String() string {
	var b strings.Builder
	for _, stage := range p.stages {
		how := "in order:"
		if stage.parallel {
			how = "together:"
		}
		fmt.Fprintln(&b, how)
		for _, st := range stage.steps {
			fmt.Fprintf(&b, "  %s\n", st)
		}
	}
	s := p.status
	fmt.Fprintf(&b, "status replicas=%d ready=%d available=%d current=%d updated=%d revisions=%s,%s\n",
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas, s.CurrentRevision, s.UpdateRevision)
	return b.String()
}

func (st step) String() string {
	out := strings.ToLower(string(st.verb)) + " " + st.pod.Name
	switch st.verb {
	case create:
		out += fmt.Sprintf(" of %s", podRevision(st.pod))
		if image := st.pod.Spec.Containers[0].Image; image != podRevision(st.pod) {
			out += " BUT WITH " + image
		}
	case update:
		var volumes []string
		for _, v := range st.pod.Spec.Volumes {
			volumes = append(volumes, v.Name)
		}
		out += fmt.Sprintf(" name=%s index=%s volumes=%s", st.pod.Labels[appsv1.StatefulSetPodNameLabel],
			st.pod.Labels[appsv1.PodIndexLabel], strings.Join(volumes, ","))
	case remove, claimsOnly:
	}
	for _, c := range st.claims {
		out += fmt.Sprintf(" +%s(%s)", c.Name, refNames(c))
	}
	for _, c := range st.refs {
		out += fmt.Sprintf(" %s(%s)", c.Name, refNames(c))
	}
	for _, name := range st.conflicting {
		out += " conflict:" + name
	}
	for _, err := range st.blocked {
		out += fmt.Sprintf(" [%v]", err)
	}
	if st.counted {
		out += " counted"
	}
	return out
}

func refNames(c *corev1.PersistentVolumeClaim) string {
	var names []string
	for _, r := range c.OwnerReferences {
		name := strings.TrimPrefix(string(r.UID), "uid-")
		if r.Controller == nil || !*r.Controller {
			name += "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestReplicasAreNoSize decides about sets with the most replicas that are valid: only the Pods that one reconcile creates are planned.
func TestReplicasAreNoSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set, pods string
		creates   int
		first     string
	}{
		{"set replicas=2147483647", "", 1, "web-0"},
		{"set replicas=2147483647 parallel", "", burst, "web-0"},
		{"set replicas=2147483647 start=7 parallel", "pod web-8 a ready", burst, "web-7"},
		{"set replicas=2147483647", "pod web-0 a ready\npod web-2147483646 a ready", 1, "web-1"},
		{"set replicas=2147483647 deleting", "", 0, ""},
		{"set replicas=2147483647 parallel claims=data scaled=delete", "claim data-web-0 owner=oldpod", burst, "web-1"},
	} {
		s := parse(t, c.set+"\n"+c.pods)
		p := decide(s)
		var creates []string
		for _, stage := range p.stages {
			for _, st := range stage.steps {
				if st.verb == create {
					creates = append(creates, st.pod.Name)
				}
			}
		}
		if len(creates) != c.creates || len(creates) > 0 && creates[0] != c.first {
			t.Errorf("%s: creates %d Pods, first %v; want %d, %s", c.set, len(creates), creates[:min(1, len(creates))], c.creates, c.first)
		}
	}
}
