package schedule_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/hop"
	"proa.dev/internal/textcase"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/schedule"
)

type groupResource = schema.GroupResource

// TestLoop plays scripts against a scheduler on a cluster in memory, in virtual time. A line that begins with "$ " is a
// command; what follows it is its input, or what must come out:
//
//	$ create                  makes the objects of the body, their status included
//	$ change RESOURCE NAME    merges the body into an object, and into its status
//	$ delete RESOURCE NAME
//	$ fail                    makes the next binding fail
//	$ deaf                    the views of the scheduler deliver no events, until
//	$ hear                    they deliver a gap
//	$ wait DURATION
//	$ pods                    prints the nodes of Pods, or why they have none
//	$ show RESOURCE NAME PATH prints what is at some paths of an object
//	$ events                  prints the Events
//	$ metrics NAME...         prints metrics
//	$ why POD                 prints and explains the latest decision about a Pod
//	$ config                  as the first command: the body is the configuration of the scheduler
func TestLoop(t *testing.T) {
	files, err := filepath.Glob("testdata/loop/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if textcase.Update() {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: got\n%s", file, got)
			}
		})
	}
}

// stage is a cluster in memory with a scheduler.
type stage struct {
	*testing.T
	admin  client.Client
	door   *failingClient
	config schedule.Config

	mu      sync.Mutex // guards records
	records []hop.Record
}

// keep is the Record of the scheduler's configuration.
func (s *stage) keep(rec hop.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.records {
		if have := &s.records[i]; have.Open && have.UID == rec.UID && have.Rev == rec.Rev && have.Start.Equal(rec.Start) {
			*have = rec
			return
		}
	}
	s.records = append(s.records, rec)
}

// failingClient is a client that can fail bindings and whose views can miss events.
type failingClient struct {
	client.Client
	mu     sync.Mutex
	refuse int
	deaf   bool
	ears   []chan struct{}
}

// View opens a view that can miss events.
func (d *failingClient) View(ctx context.Context, on groupResource) (client.View, error) {
	v, err := d.Client.View(ctx, on)
	ear := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ears = append(d.ears, ear)
	return &deafView{v, d, ear}, err
}

type deafView struct {
	client.View
	door *failingClient
	ear  chan struct{}
}

// Events yields the events of the view, or a gap and the present objects after events were missed.
func (v *deafView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		all := make(chan client.Event)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for ev := range v.View.Events(ctx) {
				select {
				case all <- ev:
				case <-ctx.Done():
				}
			}
		})
		for {
			select {
			case <-ctx.Done():
				return
			case ev := <-all:
				v.door.mu.Lock()
				deaf := v.door.deaf
				v.door.mu.Unlock()
				if !deaf && !yield(ev) {
					return
				}
			case <-v.ear:
				if !yield(client.Event{Gap: true}) {
					return
				}
				for o := range v.List("") {
					if !yield(client.Event{Object: o}) {
						return
					}
				}
			}
		}
	}
}

// set makes the view miss events, or deliver them again.
func (d *failingClient) set(deaf bool) {
	d.mu.Lock()
	d.deaf = deaf
	ears := slices.Clone(d.ears)
	d.mu.Unlock()
	if !deaf {
		for _, e := range ears {
			e <- struct{}{}
		}
	}
}

func (d *failingClient) Act(ctx context.Context, on groupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	d.mu.Lock()
	no := d.refuse > 0
	if no {
		d.refuse--
	}
	d.mu.Unlock()
	if no {
		return nil, fmt.Errorf("the door is shut")
	}
	return d.Client.Act(ctx, on, namespace, name, sub, body)
}

func play(t *testing.T, script string) (got string) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		quiet := func(c *run.Config) {
			c.FilterControllers = func(all []control.Controller) []control.Controller {
				return slices.DeleteFunc(all, func(ctl control.Controller) bool {
					return ctl.Name != "service-account-controller" && ctl.Name != "root-ca-cert-publisher"
				})
			}
		}
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), quiet)
		s := &stage{T: t, admin: cluster.Client}
		s.door = &failingClient{Client: cluster.Server.Client(&user.DefaultInfo{Name: "system:kube-scheduler",
			Groups: []string{user.AllAuthenticated}})}
		s.config = schedule.Config{Recent: schedule.NewRecent(), Metrics: schedule.NewMetrics(), Record: s.keep}
		if text, configured := strings.CutPrefix(script, "$ config\n"); configured {
			text, _, _ = strings.Cut(text, "\n$ ")
			file, err := schedule.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			s.config.File = file
		}
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			if err := schedule.Run(ctx, log, s.door, s.config); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		var out strings.Builder
		for _, step := range strings.Split("\n"+script, "\n$ ")[1:] {
			command, body, _ := strings.Cut(step, "\n")
			body, comment, noted := strings.Cut("\n"+body, "\n# ")
			out.WriteString("$ " + command + "\n" + strings.Trim(s.do(command, body), "\n"))
			if !strings.HasSuffix(out.String(), "\n") {
				out.WriteByte('\n')
			}
			if noted {
				out.WriteString("# " + strings.TrimSuffix(comment, "\n") + "\n")
			}
		}
		got = out.String()
		stop()
		wg.Wait()
		cluster.Stop()
	})
	return got
}

func (s *stage) do(command, body string) string {
	words := strings.Fields(command)
	out := body
	var err error
	switch words[0] {
	case "config":
	case "metrics":
		out, err = s.metrics(words[1:])
	case "why":
		out, err = s.why(words[1])
	case "records":
		out = s.recordsOf(words[1])
	case "create":
		err = s.create(body)
	case "change":
		err = s.change(words[1], words[2], body)
	case "delete":
		on, namespace := plural(words[1])
		err = s.admin.Delete(s.Context(), on, namespace, words[2], metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	case "deaf", "hear":
		s.door.set(words[0] == "deaf")
	case "fail":
		s.door.mu.Lock()
		s.door.refuse++
		s.door.mu.Unlock()
	case "wait":
		var d time.Duration
		if d, err = time.ParseDuration(words[1]); err == nil {
			time.Sleep(d)
		}
	case "pods":
		out = s.pods()
	case "show":
		out = s.show(words[1], words[2], words[3:])
	case "events":
		out = s.events()
	default:
		err = fmt.Errorf("no such command")
	}
	if err != nil {
		s.Fatalf("$ %s: %v", command, err)
	}
	synctest.Wait()
	return out
}

func (s *stage) create(body string) error {
	for doc := range strings.SplitSeq("\n"+body, "\n---\n") {
		synctest.Wait() // all views have the earlier changes before the next command
		obj, on, err := decode(doc)
		if err != nil {
			return err
		}
		want := obj.DeepCopyObject().(kind.Object)
		made, err := s.admin.Create(s.Context(), on, obj)
		if err != nil {
			return err
		}
		if node, ok := made.(*corev1.Node); ok { // new nodes have the not-ready taint, which no controller removes here
			node.Spec.Taints = want.(*corev1.Node).Spec.Taints
			if made, err = s.admin.Update(s.Context(), on, node, ""); err != nil {
				return err
			}
		}
		if !strings.Contains("\n"+doc, "\nstatus:") {
			continue
		}
		want.SetResourceVersion(made.GetResourceVersion())
		want.SetUID(made.GetUID())
		if _, err := s.admin.Update(s.Context(), on, want, "status"); err != nil {
			return err
		}
	}
	return nil
}

// decode decodes an object. A document without kind is a Pod with one container.
func decode(doc string) (kind.Object, groupResource, error) {
	var tm metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &tm); err != nil {
		return nil, groupResource{}, err
	}
	for _, def := range kinds.All() {
		if def.Kind == tm.Kind && def.Hub == nil {
			obj := def.New()
			err := yaml.UnmarshalStrict([]byte(doc), obj)
			if def.Scope == kind.Namespaced && obj.GetNamespace() == "" {
				obj.SetNamespace("default")
			}
			if p, ok := obj.(*corev1.Pod); ok && len(p.Spec.Containers) == 0 {
				p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			}
			return obj, def.Resource(), err
		}
	}
	return nil, groupResource{}, fmt.Errorf("no kind %q", tm.Kind)
}

func plural(name string) (groupResource, string) {
	for _, def := range kinds.All() {
		if def.Plural == name && def.Hub == nil {
			if def.Scope == kind.Namespaced {
				return def.Resource(), "default"
			}
			return def.Resource(), ""
		}
	}
	return groupResource{Resource: name}, ""
}

func (s *stage) change(name, object, body string) error {
	on, namespace := plural(name)
	obj, err := s.admin.Get(s.Context(), on, namespace, object, "")
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal([]byte(body), obj); err != nil {
		return err
	}
	want := obj.DeepCopyObject().(kind.Object)
	made, err := s.admin.Update(s.Context(), on, obj, "")
	if err != nil || !strings.Contains("\n"+body, "\nstatus:") {
		return err
	}
	want.SetResourceVersion(made.GetResourceVersion())
	_, err = s.admin.Update(s.Context(), on, want, "status")
	return err
}

func (s *stage) pods() string {
	v, err := s.admin.View(s.Context(), gr.Pods)
	if err != nil {
		s.Fatal(err)
	}
	var out strings.Builder
	for o := range v.List("") {
		p := o.(*corev1.Pod)
		fmt.Fprintf(&out, "%s", p.Name)
		if p.Spec.NodeName != "" {
			fmt.Fprintf(&out, " on %s", p.Spec.NodeName)
		}
		if p.Status.NominatedNodeName != "" {
			fmt.Fprintf(&out, " nominated for %s", p.Status.NominatedNodeName)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
				fmt.Fprintf(&out, " %s: %s", c.Reason, c.Message)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func (s *stage) events() string {
	v, err := s.admin.View(s.Context(), gr.Events)
	if err != nil {
		s.Fatal(err)
	}
	var lines []string
	for o := range v.List("") {
		e := o.(*corev1.Event)
		line := fmt.Sprintf("%s %s %s %s %s: %s", e.InvolvedObject.Name, e.Type, e.Reason, e.Action, e.ReportingController, e.Message)
		if e.Series != nil {
			line += fmt.Sprintf(" (%d times)", e.Series.Count)
		}
		lines = append(lines, anonymous(line))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// metrics prints counters, gauges and the sample counts of histograms.
func (s *stage) metrics(names []string) (string, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(s.config.Metrics); err != nil {
		return "", err
	}
	families, err := registry.Gather()
	if err != nil {
		return "", err
	}
	var lines []string
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			n := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			lines = append(lines, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), n))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// recordsOf prints the records of the attempts to place a Pod.
func (s *stage) recordsOf(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, rec := range s.records {
		if rec.Name != name {
			continue
		}
		cause := "by this state of the Pod"
		switch {
		case rec.CauseUID != rec.UID || rec.CauseRev == 0:
			cause = fmt.Sprintf("by %s at %d", rec.CauseUID, rec.CauseRev)
		case rec.CauseRev < rec.Rev:
			cause = "by an earlier state of the Pod"
		case rec.CauseRev > rec.Rev:
			cause = "by a later state of the Pod than when it began to wait"
		}
		fmt.Fprintf(&out, "%s of %s %s/%s as %s, %s: %v, waited %v %s\n", rec.Verb, rec.Resource, rec.Namespace, rec.Name, rec.User, cause,
			rec.Took[hop.Schedule], rec.Wait[hop.Schedule], rec.Error)
		if rec.Open {
			out.WriteString("  open\n")
		}
		for _, step := range rec.Steps {
			fmt.Fprintf(&out, "  %s at %v: %v, waited %v, %q", step.Name, step.After, step.Took, step.Wait, step.Detail)
			if step.Failed {
				out.WriteString(" failed")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// why prints what was found in the latest attempt to place a Pod.
func (s *stage) why(name string) (string, error) {
	o, err := s.admin.Get(s.Context(), gr.Pods, "default", name, "")
	if err != nil {
		return "", err
	}
	r, known := s.config.Recent.Of(o.GetUID())
	if !known {
		return "nothing is known", nil
	}
	lines := []string{fmt.Sprintf("attempt %d of %s: %q %s", r.Number, r.Profile, r.Node, r.Message)}
	for _, n := range r.Nodes {
		switch {
		case n.Plugin != "":
			lines = append(lines, fmt.Sprintf("%s: %s: %s", n.Node, n.Plugin, strings.Join(n.Reasons, ", ")))
		case n.Scored:
			lines = append(lines, fmt.Sprintf("%s: %d %v", n.Node, n.Score, n.Scores))
		default:
			lines = append(lines, n.Node+": suitable")
		}
	}
	if r.LeftOut > 0 || r.Rest != nil {
		lines = append(lines, fmt.Sprintf("and %d, rest %v", r.LeftOut, r.Rest))
	}
	return strings.Join(lines, "\n"), nil
}
