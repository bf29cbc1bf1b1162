package deployment

import (
	"fmt"
	"maps"
	"math"
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

	"proa.dev/control/lib/workload"
	"proa.dev/internal/textcase"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestDecide runs the cases of testdata/decide: a Deployment with its status, conditions and sets, and after "=>" the
// plan.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/decide/*.txt", "=>", func(t *testing.T, in string) string { return runCase(t, strings.TrimSpace(in)) })
}

func runCase(t *testing.T, in string) string {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "d", Generation: 2,
		Annotations: map[string]string{}}}
	d.Spec = appsv1.DeploymentSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template("B"),
		ProgressDeadlineSeconds: new(int32(600)), RevisionHistoryLimit: new(int32(10)),
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))}},
	}
	var sets []*appsv1.ReplicaSet
	busy := map[types.UID]bool{}
	for line := range strings.SplitSeq(in, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "deployment":
			parseDeployment(t, d, rest)
		case "status":
			parseStatus(t, d, rest)
		case "condition":
			f := strings.Fields(rest)
			at := metav1.NewTime(now.Add(-duration(t, f[3])))
			d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentConditionType(f[0]), Status: corev1.ConditionStatus(f[1]), Reason: f[2], LastUpdateTime: at,
				LastTransitionTime: at,
			})
		case "set":
			sets = append(sets, parseSet(t, rest, busy))
		default:
			t.Fatalf("line %q", line)
		}
	}
	before := d.DeepCopy()
	p, err := decide(d, sets, busy, now)
	if err != nil {
		return "error " + err.Error()
	}
	if fmt.Sprint(before) != fmt.Sprint(d) {
		t.Error("the Deployment of the view was changed")
	}
	return describe(t, d, sets, p)
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func count(t *testing.T, s string) int32 {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

func parseDeployment(t *testing.T, d *appsv1.Deployment, line string) {
	for f := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "replicas":
			d.Spec.Replicas = new(count(t, value))
		case "surge":
			d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.Parse(value))
		case "unavailable":
			d.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(value))
		case "recreate":
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		case "strategy":
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.DeploymentStrategyType(value)}
		case "paused":
			d.Spec.Paused = true
		case "deleting":
			d.DeletionTimestamp = new(metav1.NewTime(now))
		case "deadline":
			if d.Spec.ProgressDeadlineSeconds = new(int32(math.MaxInt32)); value != "none" {
				d.Spec.ProgressDeadlineSeconds = new(count(t, value))
			}
		case "minready":
			d.Spec.MinReadySeconds = count(t, value)
		case "history":
			d.Spec.RevisionHistoryLimit = new(count(t, value))
		case "template":
			d.Spec.Template = template(value)
		case "revision":
			d.Annotations[revisionAnnotation] = value
		case "rollback":
			d.Annotations[appsv1.DeprecatedRollbackTo] = value
		case "collisions":
			d.Status.CollisionCount = new(count(t, value))
		case "cause":
			d.Annotations["kubernetes.io/change-cause"] = value
		default:
			t.Fatalf("field %q", f)
		}
	}
}

func parseStatus(t *testing.T, d *appsv1.Deployment, line string) {
	for f := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(f, "=")
		*map[string]*int32{"replicas": &d.Status.Replicas, "updated": &d.Status.UpdatedReplicas, "ready": &d.Status.ReadyReplicas,
			"available": &d.Status.AvailableReplicas, "unavailable": &d.Status.UnavailableReplicas}[key] = count(t, value)
	}
	d.Status.ObservedGeneration, d.Status.TerminatingReplicas = d.Generation, new(int32(0))
}

func parseSet(t *testing.T, line string, busy map[types.UID]bool) *appsv1.ReplicaSet {
	fields := strings.Fields(line)
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: fields[0], Namespace: "ns", UID: types.UID(fields[0]), Generation: 1,
		Annotations: map[string]string{}}}
	rs.Status.ObservedGeneration, rs.Status.TerminatingReplicas = 1, new(int32(0))
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "template":
			rs.Spec.Template = template(value)
			rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = fields[0]
		case "size":
			rs.Spec.Replicas = new(count(t, value))
		case "have":
			rs.Status.Replicas = count(t, value)
		case "ready":
			rs.Status.ReadyReplicas = count(t, value)
		case "available":
			rs.Status.AvailableReplicas = count(t, value)
		case "terminating":
			if rs.Status.TerminatingReplicas = nil; value != "?" {
				rs.Status.TerminatingReplicas = new(count(t, value))
			}
		case "observed":
			rs.Status.ObservedGeneration = int64(count(t, value))
		case "revision":
			rs.Annotations[revisionAnnotation] = value
		case "was":
			rs.Annotations[historyAnnotation] = value
		case "desired":
			rs.Annotations[desiredAnnotation] = value
		case "max":
			rs.Annotations[maxAnnotation] = value
		case "cause":
			rs.Annotations["kubernetes.io/change-cause"] = value
		case "minready":
			rs.Spec.MinReadySeconds = count(t, value)
		case "age":
			rs.CreationTimestamp = metav1.NewTime(now.Add(-duration(t, value)))
		case "busy":
			busy[rs.UID] = true
		case "failing":
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
				Reason: "FailedCreate", Message: value}}
		case "deleting":
			rs.DeletionTimestamp = new(metav1.NewTime(now))
		default:
			t.Fatalf("field %q", f)
		}
	}
	return rs
}

func describe(t *testing.T, d *appsv1.Deployment, sets []*appsv1.ReplicaSet, p plan) string {
	var out []string
	printf := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	hash, err := workload.Hash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		t.Fatal(err)
	}
	mask := func(s string) string { return strings.ReplaceAll(s, hash, "HASH") }
	if r := p.rollback; r != nil {
		printf("rollback to template=%s %s", r.Spec.Template.Spec.Containers[0].Image, annotations(nil, r.Annotations))
	}
	if rs := p.create; rs != nil {
		printf("create %s size=%d template=%s minready=%d %s", mask(rs.Name), *rs.Spec.Replicas, rs.Spec.Template.Spec.Containers[0].Image,
			rs.Spec.MinReadySeconds, annotations(nil, rs.Annotations))
	}
	for _, rs := range p.update {
		was := sets[slices.IndexFunc(sets, func(s *appsv1.ReplicaSet) bool { return s.UID == rs.UID })]
		if was == rs {
			t.Error("the set of the view was changed")
		}
		line := "update " + rs.Name
		if size(was) != size(rs) {
			line += fmt.Sprintf(" size=%d->%d", size(was), size(rs))
		}
		if was.Spec.MinReadySeconds != rs.Spec.MinReadySeconds {
			line += fmt.Sprintf(" minready=%d->%d", was.Spec.MinReadySeconds, rs.Spec.MinReadySeconds)
		}
		printf("%s %s", line, annotations(was.Annotations, rs.Annotations))
	}
	for _, rs := range p.remove {
		printf("remove %s", rs.Name)
	}
	if p.status != nil {
		s := &p.status.Status
		unknown := "?"
		if s.TerminatingReplicas != nil {
			unknown = fmt.Sprint(*s.TerminatingReplicas)
		}
		printf("status revision=%s observed=%d replicas=%d updated=%d ready=%d available=%d unavailable=%d terminating=%s", p.status.Annotations[revisionAnnotation],
			s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas, unknown)
		for _, c := range s.Conditions {
			printf("condition %s %s %s %q updated %v ago, since %v", c.Type, c.Status, c.Reason, mask(c.Message),
				now.Sub(c.LastUpdateTime.Time), now.Sub(c.LastTransitionTime.Time))
		}
	}
	for _, set := range slices.Sorted(maps.Keys(p.events)) {
		for _, e := range p.events[set] {
			printf("event %s %s %s", e.kind, e.reason, mask(e.message))
		}
	}
	if p.again != 0 {
		printf("again %v", p.again)
	}
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return strings.Join(out, "\n")
}

// annotations returns the annotations that changed, without the common prefix of their names.
func annotations(was, is map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(is)) {
		if v, had := was[k]; !had || v != is[k] {
			out = append(out, strings.TrimPrefix(strings.TrimPrefix(k, "deployment.kubernetes.io/"), "kubernetes.io/")+"="+is[k])
		}
	}
	return strings.Join(out, " ")
}

func TestHistoryIsBounded(t *testing.T) {
	history := ""
	for i := range 3000 {
		if next, fits := appendRevision(history, strconv.Itoa(i)); fits {
			history = next
		}
	}
	if len(history) > historyLength || !strings.HasSuffix(history, ",2999") || strings.HasPrefix(history, "0,") {
		t.Errorf("history of %d letters: %.20s…", len(history), history)
	}
	if _, fits := appendRevision("1", strings.Repeat("9", 3000)); fits {
		t.Error("a revision that is too long does not fit")
	}
}

func TestNewSet(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "d"}}
	d.Spec = appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Template: template("B"),
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: metav1.LabelSelectorOpExists}}},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
	}
	p, err := decide(d, nil, nil, now)
	if err != nil || p.create == nil {
		t.Fatal(p, err)
	}
	rs := p.create
	hash, _ := workload.Hash(&d.Spec.Template, nil)
	const key = appsv1.DefaultDeploymentUniqueLabelKey
	if rs.Name != "web-"+hash || rs.Labels[key] != hash || rs.Spec.Template.Labels[key] != hash ||
		rs.Spec.Selector.MatchLabels[key] != hash || len(rs.Spec.Selector.MatchExpressions) != 1 {
		t.Errorf("set %+v", rs)
	}
	if ref := metav1.GetControllerOf(rs); ref == nil || ref.UID != "d" || ref.Kind != "Deployment" || ref.APIVersion != "apps/v1" ||
		!*ref.BlockOwnerDeletion {
		t.Errorf("owner %+v", ref)
	}
	if d.Spec.Template.Labels[key] != "" || len(d.Spec.Selector.MatchLabels) != 0 {
		t.Error("the Deployment was changed")
	}
	again := withCollision(d)
	p, err = decide(again, nil, nil, now)
	if err != nil || p.create.Name == rs.Name || *again.Status.CollisionCount != 1 || *withCollision(again).Status.CollisionCount != 2 {
		t.Errorf("after a collision the name is %s", p.create.Name)
	}
	if got := setName(strings.Repeat("a", 253), "hash"); len(got) != 253 || !strings.HasSuffix(got, "a-hash") {
		t.Errorf("a long name: %d %s", len(got), got)
	}
}

func TestReplicaSetCreateError(t *testing.T) {
	got := withCreateError(&appsv1.Deployment{}, "no", now).Status.Conditions
	if len(got) != 1 || got[0].Type != appsv1.DeploymentProgressing || got[0].Status != corev1.ConditionFalse ||
		got[0].Reason != "ReplicaSetCreateError" || got[0].Message != "no" {
		t.Errorf("conditions %+v", got)
	}
}
