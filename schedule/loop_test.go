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

// TestLoop runs scripts against a scheduler on a cluster in memory, in virtual time. A line that begins with "$ " is a command;
// the lines after it are its input, or the output that it must have:
//
//	$ create                  creates the objects of the body, including their status
//	$ change RESOURCE NAME    merges the body into an object, and into its status
//	$ delete RESOURCE NAME
//	$ fail                    makes the next binding fail
//	$ dropevents              the views of the scheduler drop all events, until
//	$ sendgap                 they send a gap, and events again
//	$ wait DURATION
//	$ pods                    prints the nodes of Pods, or why they have none
//	$ show RESOURCE NAME PATH prints the values at some paths of an object
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
			got := runScript(t, string(text))
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

// loopTest is a cluster in memory with a scheduler, which uses client.
type loopTest struct {
	*testing.T
	admin  client.Client
	client *failingClient
	config schedule.Config

	mu      sync.Mutex // guards records
	records []hop.Record
}

// addRecord is the Record function of the scheduler's configuration.
func (s *loopTest) addRecord(rec hop.Record) {
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

// failingClient is a client that fails the next failBindings bindings, and whose views drop events while dropEvents is set.
type failingClient struct {
	client.Client
	mu           sync.Mutex
	failBindings int
	dropEvents   bool
	gaps         []chan struct{}
}

// View opens a view that can drop events.
func (d *failingClient) View(ctx context.Context, on groupResource) (client.View, error) {
	v, err := d.Client.View(ctx, on)
	gap := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gaps = append(d.gaps, gap)
	return &lossyView{v, d, gap}, err
}

type lossyView struct {
	client.View
	client *failingClient
	gap    chan struct{}
}

// Events yields the events of the view, and a gap followed by the current objects after events were dropped.
func (v *lossyView) Events(ctx context.Context) iter.Seq[client.Event] {
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
				v.client.mu.Lock()
				drop := v.client.dropEvents
				v.client.mu.Unlock()
				if !drop && !yield(ev) {
					return
				}
			case <-v.gap:
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

// setDropEvents makes the views drop events, or send a gap and events again.
func (d *failingClient) setDropEvents(drop bool) {
	d.mu.Lock()
	d.dropEvents = drop
	gaps := slices.Clone(d.gaps)
	d.mu.Unlock()
	if !drop {
		for _, e := range gaps {
			e <- struct{}{}
		}
	}
}

func (d *failingClient) Act(ctx context.Context, on groupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	d.mu.Lock()
	fail := d.failBindings > 0
	if fail {
		d.failBindings--
	}
	d.mu.Unlock()
	if fail {
		return nil, fmt.Errorf("the test fails the binding")
	}
	return d.Client.Act(ctx, on, namespace, name, sub, body)
}

func runScript(t *testing.T, script string) (got string) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fewControllers := func(c *run.Config) {
			c.FilterControllers = func(all []control.Controller) []control.Controller {
				return slices.DeleteFunc(all, func(ctl control.Controller) bool {
					return ctl.Name != "service-account-controller" && ctl.Name != "root-ca-cert-publisher"
				})
			}
		}
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), fewControllers)
		s := &loopTest{T: t, admin: cluster.Client}
		s.client = &failingClient{Client: cluster.Server.Client(&user.DefaultInfo{Name: "system:kube-scheduler",
			Groups: []string{user.AllAuthenticated}})}
		s.config = schedule.Config{Recent: schedule.NewRecent(), Metrics: schedule.NewMetrics(), Record: s.addRecord}
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
			if err := schedule.Run(ctx, log, s.client, s.config); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		var out strings.Builder
		for _, step := range strings.Split("\n"+script, "\n$ ")[1:] {
			command, body, _ := strings.Cut(step, "\n")
			body, comment, hasComment := strings.Cut("\n"+body, "\n# ")
			out.WriteString("$ " + command + "\n" + strings.Trim(s.do(command, body), "\n"))
			if !strings.HasSuffix(out.String(), "\n") {
				out.WriteByte('\n')
			}
			if hasComment {
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

func (s *loopTest) do(command, body string) string {
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
	case "dropevents", "sendgap":
		s.client.setDropEvents(words[0] == "dropevents")
	case "fail":
		s.client.mu.Lock()
		s.client.failBindings++
		s.client.mu.Unlock()
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

func (s *loopTest) create(body string) error {
	for doc := range strings.SplitSeq("\n"+body, "\n---\n") {
		synctest.Wait() // until all views have the earlier changes
		obj, on, err := decode(doc)
		if err != nil {
			return err
		}
		want := obj.DeepCopyObject().(kind.Object)
		created, err := s.admin.Create(s.Context(), on, obj)
		if err != nil {
			return err
		}
		if node, ok := created.(*corev1.Node); ok { // new nodes have the not-ready taint, which no controller removes here
			node.Spec.Taints = want.(*corev1.Node).Spec.Taints
			if created, err = s.admin.Update(s.Context(), on, node, ""); err != nil {
				return err
			}
		}
		if !strings.Contains("\n"+doc, "\nstatus:") {
			continue
		}
		want.SetResourceVersion(created.GetResourceVersion())
		want.SetUID(created.GetUID())
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

func (s *loopTest) change(name, object, body string) error {
	on, namespace := plural(name)
	obj, err := s.admin.Get(s.Context(), on, namespace, object, "")
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal([]byte(body), obj); err != nil {
		return err
	}
	want := obj.DeepCopyObject().(kind.Object)
	updated, err := s.admin.Update(s.Context(), on, obj, "")
	if err != nil || !strings.Contains("\n"+body, "\nstatus:") {
		return err
	}
	want.SetResourceVersion(updated.GetResourceVersion())
	_, err = s.admin.Update(s.Context(), on, want, "status")
	return err
}

func (s *loopTest) pods() string {
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

func (s *loopTest) events() string {
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
func (s *loopTest) metrics(names []string) (string, error) {
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
func (s *loopTest) recordsOf(name string) string {
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
func (s *loopTest) why(name string) (string, error) {
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
