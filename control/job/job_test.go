package job

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
)

// TestReconcile runs the scripts of testdata, with one Job and its Pods. "== title" begins a new Job.
//
//	$ job               the spec, in YAML; again to change it
//	$ reconcile [cut=announced|made|noted|released] [fail=create|remove|release]
//	                    one reconcile, which may end after a write, or whose writes may fail; prints what it did, and the status
//	$ run|ready|succeed NAME...
//	$ fail NAME... [exit=N] [condition=TYPE]
//	$ restart NAME N    the containers of a Pod have restarted so often
//	$ delete NAME...    a Pod is being deleted
//	$ gone NAME...      the deletion of a Pod has finished
//	$ pod NAME [index=N] [failures=N] [untracked]  a Pod that a user created
//	$ deleting          the Job is being deleted
//	$ forget            the controller has restarted, and does not know earlier failures
//	$ wait DURATION
func TestReconcile(t *testing.T) {
	textcase.Play(t, "testdata/*.txt", "== ", func(t *testing.T, body string) string {
		w := &world{T: t, now: epoch}
		return textcase.Script(body, w.play)
	})
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

type world struct {
	*testing.T
	now     time.Time
	job     *batchv1.Job
	pods    []*corev1.Pod
	made    int
	backoff *backoff
	out     strings.Builder
}

// play runs one command. Only reconcile prints something.
func (w *world) play(command, input string) (string, bool) {
	w.out.Reset()
	w.do(strings.Fields(command), input)
	return strings.TrimRight(w.out.String(), "\n"), strings.HasPrefix(command, "reconcile")
}

func (w *world) do(words []string, body string) {
	options := map[string]string{}
	var names []string
	for _, word := range words[1:] {
		if k, v, ok := strings.Cut(word, "="); ok {
			options[k] = v
		} else {
			names = append(names, word)
		}
	}
	switch words[0] {
	case "job":
		w.setJob(body)
	case "reconcile":
		w.reconcile(options["cut"], options["fail"])
	case "wait":
		d, err := time.ParseDuration(names[0])
		if err != nil {
			w.Fatal(err)
		}
		w.now = w.now.Add(d)
	case "pod":
		w.pods = append(w.pods, w.newPod(names, options))
	case "gone":
		w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return slices.Contains(names, p.Name) })
	case "deleting":
		w.job.DeletionTimestamp = new(metav1.NewTime(w.now))
	case "forget":
		w.backoff = nil
	case "restart":
		n, _ := strconv.Atoi(names[1])
		w.pod(names[0]).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: int32(n)}}
	default:
		for _, name := range names {
			w.change(words[0], w.pod(name), options)
		}
	}
}

func (w *world) setJob(body string) {
	if w.job == nil {
		w.job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "job"}}
	}
	spec := batchv1.JobSpec{
		Parallelism: new(int32(1)), BackoffLimit: new(int32(6)),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"job": "j"}},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c"}}},
		},
	}
	if err := yaml.UnmarshalStrict([]byte(body), &spec); err != nil {
		w.Fatal(err)
	}
	w.job.Spec = spec
}

func (w *world) pod(name string) *corev1.Pod {
	for _, p := range w.pods {
		if p.Name == name {
			return p
		}
	}
	w.Fatalf("there is no pod %s", name)
	return nil
}

func (w *world) newPod(names []string, options map[string]string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: names[0], UID: types.UID(names[0]), CreationTimestamp: metav1.NewTime(w.now),
			Annotations: map[string]string{}},
		Spec:   w.job.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if i := options["index"]; i != "" {
		p.Annotations[batchv1.JobCompletionIndexAnnotation] = i
	}
	if n := options["failures"]; n != "" {
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] = n
	}
	if !slices.Contains(names, "untracked") {
		p.Finalizers = []string{batchv1.JobTrackingFinalizer}
	}
	return p
}

func (w *world) change(verb string, p *corev1.Pod, options map[string]string) {
	ready := func(s corev1.ConditionStatus) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s, LastTransitionTime: metav1.NewTime(w.now)}}
	}
	p.Spec.NodeName = "node"
	exit := int32(0)
	switch verb {
	case "run":
		p.Status.Phase = corev1.PodRunning
		return
	case "ready":
		p.Status.Phase = corev1.PodRunning
		ready(corev1.ConditionTrue)
		return
	case "delete":
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(w.now.Add(30*time.Second))), new(int64(30))
		return
	case "succeed":
		p.Status.Phase = corev1.PodSucceeded
	case "fail":
		p.Status.Phase, exit = corev1.PodFailed, 1
		if n, err := strconv.Atoi(options["exit"]); err == nil {
			exit = int32(n)
		}
	default:
		w.Fatalf("no command %s", verb)
	}
	ready(corev1.ConditionFalse)
	if c := options["condition"]; c != "" {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodConditionType(c), Status: corev1.ConditionTrue})
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.NewTime(w.now)},
	}}}
}

// reconcile does what reconcile does, on the objects of the test.
func (w *world) reconcile(cut, fail string) {
	l, p := decide(w.job.DeepCopy(), w.pods, w.backoff, w.now)
	if len(p.remove) > 0 && l.announce() {
		w.job.Status = *l.job.Status.DeepCopy()
		l.job = w.job.DeepCopy()
		w.print("announced")
	}
	if cut == "announced" {
		return
	}
	created, removed := w.act(l, p, fail)
	if cut == "made" {
		return
	}
	release := l.updateStatus(created, removed)
	w.job.Status = *l.job.Status.DeepCopy()
	w.backoff = new(l.backoff)
	w.tell(l.events)
	if cut == "noted" {
		w.status()
		return
	}
	released := sets.New[types.UID]()
	if fail != "release" {
		for _, p := range release {
			w.print("release %s", p.Name)
			w.untrack(w.pod(p.Name))
			released.Insert(p.UID)
		}
	}
	if cut == "released" {
		w.status()
		return
	}
	stored := w.job.DeepCopy()
	events := l.finish(stored, released, fail != "release")
	w.job.Status = stored.Status
	w.tell(events)
	if p.again > 0 {
		w.print("again %s", p.again)
	}
	w.status()
}

func (w *world) act(l *jobState, p plan, fail string) (created int, removed []*corev1.Pod) {
	for _, index := range p.create {
		n := l.newIndexedPod(index)
		w.made++
		n.Name, n.UID = fmt.Sprintf("p%d", w.made), types.UID(fmt.Sprintf("p%d", w.made))
		n.CreationTimestamp, n.Status.Phase = metav1.NewTime(w.now), corev1.PodPending
		if fail == "create" {
			w.print("cannot create %s", n.Name)
			continue
		}
		text := "create " + n.Name
		if a := n.Annotations; a[batchv1.JobCompletionIndexAnnotation] != "" {
			text += fmt.Sprintf(" as %s, host %s, label %s, env %s", n.GenerateName, n.Spec.Hostname,
				n.Labels[batchv1.JobCompletionIndexAnnotation], n.Spec.Containers[0].Env[0].Name)
			if f, ok := a[batchv1.JobIndexFailureCountAnnotation]; ok {
				text += ", failures " + f + strings.TrimSuffix(" ignored "+a[batchv1.JobIndexIgnoredFailureCountAnnotation], " ignored ")
			}
		}
		w.print("%s", text)
		w.pods = append(w.pods, n)
		created++
	}
	for _, p := range p.remove {
		if fail == "remove" {
			w.print("cannot remove %s", p.Name)
			continue
		}
		have := w.pod(p.Name)
		removed = append(removed, p.DeepCopy())
		w.print("remove %s", p.Name)
		i := slices.Index(w.pods, have)
		w.pods[i] = have.DeepCopy()
		w.pods[i].DeletionTimestamp = new(metav1.NewTime(w.now))
	}
	if !p.tracked {
		for _, r := range removed {
			w.print("untracked %s", r.Name)
			w.untrack(w.pod(r.Name))
		}
	}
	return created, removed
}

// untrack removes the finalizer; a Pod that is being deleted and has no node is removed then.
func (w *world) untrack(p *corev1.Pod) {
	i := slices.Index(w.pods, p)
	w.pods[i] = withoutFinalizer(p)
	if p.DeletionTimestamp != nil && p.Spec.NodeName == "" {
		w.pods = slices.Delete(w.pods, i, i+1)
	}
}

func (w *world) tell(events []event) {
	for _, e := range events {
		w.print("event %s %s: %s", e.kind, e.reason, e.message)
	}
}

func (w *world) print(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

func (w *world) status() {
	s := &w.job.Status
	text := fmt.Sprintf("active %d ready %d terminating %d succeeded %d failed %d", s.Active, *s.Ready, *s.Terminating, s.Succeeded,
		s.Failed)
	if u := s.UncountedTerminatedPods; len(u.Succeeded)+len(u.Failed) > 0 {
		text += fmt.Sprintf(", uncounted %v %v", u.Succeeded, u.Failed)
	}
	if s.CompletedIndexes != "" {
		text += ", completed " + s.CompletedIndexes
	}
	if s.FailedIndexes != nil {
		text += fmt.Sprintf(", lost %q", *s.FailedIndexes)
	}
	for what, at := range map[string]*metav1.Time{", started ": s.StartTime} {
		if at != nil {
			text += what + at.Sub(epoch).String()
		}
	}
	if s.CompletionTime != nil {
		text += ", completed at " + s.CompletionTime.Sub(epoch).String()
	}
	w.print("= %s", text)
	for _, c := range s.Conditions {
		w.print("= %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
}

// TestMany checks that one reconcile handles a bounded number of Pods, and that the Job finishes in the end.
func TestMany(t *testing.T) {
	for _, mode := range []batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion} {
		w := &world{T: t, now: epoch}
		w.setJob("parallelism: 1200\ncompletions: 1200\ncompletionMode: " + string(mode))
		for _, want := range []int{500, 1000, 1200, 1200} {
			w.reconcile("", "")
			if len(w.pods) != want || int(w.job.Status.Active) != want {
				t.Fatalf("%s: %d pods, %d active, want %d", mode, len(w.pods), w.job.Status.Active, want)
			}
		}
		for _, p := range w.pods {
			w.change("succeed", p, nil)
		}
		counts := []int32{500, 1000, 1200}
		if mode == batchv1.IndexedCompletion {
			counts = []int32{1200, 1200} // indexes are short enough to be noted together
		}
		for i, want := range counts {
			if mode == batchv1.NonIndexedCompletion {
				w.reconcile("noted", "") // a full list does not block progress
			}
			if u := w.job.Status.UncountedTerminatedPods; len(u.Succeeded) > maxUncounted {
				t.Fatalf("%s: %d are listed as uncounted", mode, len(u.Succeeded))
			}
			w.reconcile("", "")
			if got := w.job.Status.Succeeded; got != want {
				t.Fatalf("%s: %d have succeeded after %d reconciles, want %d", mode, got, i+1, want)
			}
			if is := isFinished(w.job); is != (i == len(counts)-1) {
				t.Fatalf("%s: finished after %d reconciles: %v", mode, i+1, is)
			}
		}
		if slices.ContainsFunc(w.pods, hasFinalizer) {
			t.Errorf("%s: a pod is still tracked", mode)
		}
	}
}

// TestJobsOfBillions decides about Jobs with the most Pods that are valid: only those that one reconcile creates are planned, and Pods
// that have the same index are found in one pass.
func TestJobsOfBillions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, mode := range []batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "j"}, Spec: batchv1.JobSpec{
			Parallelism: new(int32(math.MaxInt32)), Completions: new(int32(math.MaxInt32)), BackoffLimit: new(int32(6)),
			CompletionMode: &mode,
		}}
		if _, p := decide(j.DeepCopy(), nil, nil, now); len(p.create) != maxPods {
			t.Errorf("%s: %d Pods are to be created", mode, len(p.create))
		}
		var pods []*corev1.Pod
		for i := range 30_000 {
			pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i)),
				Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: "7"}}})
		}
		want := 0
		if mode == batchv1.IndexedCompletion {
			want = maxPods
		}
		if _, p := decide(j, pods, nil, now); len(p.remove) != want {
			t.Errorf("%s: %d Pods of one index are to be deleted", mode, len(p.remove))
		}
	}
}
