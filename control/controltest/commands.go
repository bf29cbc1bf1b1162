package controltest

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// do runs one step and returns it with its output. The commands:
//
//	create              creates the objects of the body (YAML documents; a status is stored too)
//	refused TEXT        tries to create the objects of the body; the error must contain the text
//	change KIND NAME    merges the body (YAML) into an object, its status included
//	delete KIND NAME [background|foreground|orphan] [grace=N]
//	own RESOURCE NAME RESOURCE OWNER [blocking|controller]  adds an owner reference to an object
//	ready NAME...       makes Pods running and ready, as a kubelet would; NAME may have * and ?
//	unready NAME...     makes Pods running and not ready
//	succeed NAME...     makes Pods succeed
//	fail NAME... [exit=N]  makes Pods fail
//	bind NODE NAME...   binds Pods to a node, as a scheduler would
//	kill                finishes the deletion of Pods that are being deleted
//	wait DURATION       lets virtual time pass
//	refuse VERB RESOURCE [N]  makes the next N writes (1) of the controllers fail
//	show RESOURCE       prints the table that kubectl would
//	yaml RESOURCE NAME [FIELD...]  prints an object, or some fields of it
//	events              prints the Events so far: object, type, reason, message
//	exact               first line of a script that must not be perturbed
//
// Objects are of the namespace default unless they say otherwise; a NAME may be NAMESPACE/NAME.
func (s *player) do(st step) string {
	var out string
	var err error
	hasOutput := false // the body is the wanted output
	switch args := st.args(); st.name() {
	case "exact":
	case "create":
		err = s.create(st.body)
	case "refused":
		if err = s.create(st.body); err == nil || !strings.Contains(err.Error(), strings.Join(args, " ")) {
			err = fmt.Errorf("the error is %v", err)
		} else {
			err = nil
		}
	case "change":
		err = s.change(args[0], args[1], st.body)
	case "delete":
		err = s.remove(args)
	case "own":
		err = s.own(args)
	case "ready", "unready", "succeed", "fail":
		err = s.pods(st.name(), args)
	case "bind":
		err = s.bind(args[0], args[1:])
	case "kill":
		err = s.kill()
	case "wait":
		var d time.Duration
		if d, err = time.ParseDuration(args[0]); err == nil {
			time.Sleep(d)
		}
	case "refuse":
		err = s.refuse(args)
	case "show":
		hasOutput = true
		out, err = s.show(args[0])
	case "yaml":
		hasOutput = true
		out, err = s.yaml(args)
	case "events":
		hasOutput = true
		out, err = s.events()
	default:
		err = fmt.Errorf("no such command")
	}
	if err != nil {
		s.Fatalf("$ %s: %v", st.command, err)
	}
	synctest.Wait()
	if !hasOutput {
		s.settle()
		return st.render(st.body)
	}
	s.compare(st, out)
	return st.render(out)
}

// settle gives the controllers time for retries after conflicts, and under a perturbation the time to reach the end state.
func (s *player) settle() {
	time.Sleep(20 * time.Millisecond)
	if s.perturb != nil {
		time.Sleep(s.perturb.settleTime)
	}
	synctest.Wait()
}

// compare fails the test when an output differs from that in the script. Under a perturbation Events, the order and numbers of
// generated names, and the times of taints and conditions may differ.
func (s *player) compare(st step, out string) {
	want := st.body
	if s.perturb != nil {
		if st.name() == "events" {
			return
		}
		want, out = normalize(want), normalize(out)
	}
	if !textcase.Update() && strings.TrimSpace(want) != strings.TrimSpace(out) {
		s.Errorf("$ %s\ngot:\n%s\nwant:\n%s", st.command, out, want)
	}
}

func normalize(text string) string {
	var lines []string
	for line := range strings.Lines(generated.ReplaceAllString(text, "~")) {
		lines = append(lines, strings.Join(strings.Fields(moments.ReplaceAllString(ages.ReplaceAllString(line, " AGE "), "$1: TIME")), " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (s *player) create(body string) error {
	for _, doc := range documents(body) {
		def, obj, err := s.decode(doc)
		if err != nil {
			return err
		}
		if def.Scope == kind.Namespaced && obj.GetNamespace() == "" {
			obj.SetNamespace("default")
		}
		made, err := s.cluster.Client.Create(s.Context(), def.Resource(), obj)
		if err != nil {
			return err
		}
		if def.Sub("status") == nil || !strings.Contains("\n"+doc, "\nstatus:") {
			continue
		}
		full, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return err
		}
		var part struct {
			Status json.RawMessage `json:"status"`
		}
		if err := json.Unmarshal(full, &part); err != nil {
			return err
		}
		patch, err := json.Marshal(part)
		if err != nil {
			return err
		}
		next, err := mergePatch(def, made, patch)
		if err != nil {
			return err
		}
		if err := s.store(def, next, "status"); err != nil {
			return err
		}
	}
	return nil
}

// store overwrites an object, even if a controller has changed it meanwhile.
func (s *player) store(def *kind.Def, obj kind.Object, sub string) error {
	obj.SetResourceVersion("")
	for {
		if def.IsCustom() { // updates of custom resources must have a resourceVersion
			now, err := s.cluster.Client.Get(s.Context(), def.Resource(), obj.GetNamespace(), obj.GetName(), "")
			if err != nil {
				return err
			}
			obj.SetResourceVersion(now.GetResourceVersion())
		}
		_, err := s.cluster.Client.Update(s.Context(), def.Resource(), obj.DeepCopyObject().(kind.Object), sub)
		if !apierrors.IsConflict(err) || !def.IsCustom() {
			return err
		}
	}
}

func documents(body string) (out []string) {
	for doc := range strings.SplitSeq("\n"+body, "\n---") {
		if strings.TrimSpace(doc) != "" {
			out = append(out, doc)
		}
	}
	return out
}

// decode returns the object of a document, in its storage version.
func (s *player) decode(doc string) (*kind.Def, kind.Object, error) {
	var tm metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &tm); err != nil {
		return nil, nil, err
	}
	for _, def := range s.cluster.Server.Resources() {
		if def.GroupVersionKind == tm.GroupVersionKind() && def.Hub == nil {
			obj := def.New()
			return def, obj, yaml.UnmarshalStrict([]byte(doc), obj)
		}
	}
	return nil, nil, fmt.Errorf("no kind %s", tm.GroupVersionKind())
}

// change merges a patch into an object, and into its status.
func (s *player) change(resource, name, patch string) error {
	merge, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		return err
	}
	for _, sub := range []string{"", "status"} {
		if sub != "" && !strings.Contains("\n"+patch, "\nstatus:") {
			break
		}
		for try := 0; ; try++ {
			def, obj, err := s.find(resource, name)
			if err != nil {
				return err
			}
			next, err := mergePatch(def, obj, merge)
			if err != nil {
				return err
			}
			if _, err = s.cluster.Client.Update(s.Context(), def.Resource(), next, sub); err == nil {
				break
			}
			if try > 10 || !apierrors.IsConflict(err) {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func mergePatch(def *kind.Def, obj kind.Object, patch []byte) (kind.Object, error) {
	doc, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if doc, err = jsonpatch.MergePatch(doc, patch); err != nil {
		return nil, err
	}
	next := def.New()
	return next, json.Unmarshal(doc, next)
}

func (s *player) remove(args []string) error {
	def, obj, err := s.find(args[0], args[1])
	if err != nil {
		return err
	}
	var options metav1.DeleteOptions
	for _, a := range args[2:] {
		var n int64
		switch a {
		case "background":
			options.PropagationPolicy = new(metav1.DeletePropagationBackground)
		case "foreground":
			options.PropagationPolicy = new(metav1.DeletePropagationForeground)
		case "orphan":
			options.PropagationPolicy = new(metav1.DeletePropagationOrphan)
		default:
			if _, err := fmt.Sscanf(a, "grace=%d", &n); err != nil {
				return fmt.Errorf("%q: %w", a, err)
			}
			options.GracePeriodSeconds = &n
		}
	}
	return s.cluster.Client.Delete(s.Context(), def.Resource(), obj.GetNamespace(), obj.GetName(), options)
}

// own adds an owner reference to an object.
func (s *player) own(args []string) error {
	owners, owner, err := s.find(args[2], args[3])
	if err != nil {
		return err
	}
	def, obj, err := s.find(args[0], args[1])
	if err != nil {
		return err
	}
	how := strings.Join(args[4:], "")
	obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: owners.GroupVersion().String(), Kind: owners.Kind, Name: owner.GetName(), UID: owner.GetUID(),
		BlockOwnerDeletion: new(how == "blocking"), Controller: new(how == "controller"),
	}))
	return s.store(def, obj, "")
}

// find reads an object by the name that scripts show.
func (s *player) find(resource, name string) (*kind.Def, kind.Object, error) {
	def, objects, err := s.list(resource)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		if s.shownName(o) == name {
			return def, o.DeepCopyObject().(kind.Object), nil
		}
	}
	return nil, nil, fmt.Errorf("there is no %s %s", resource, name)
}

// list reads the objects of a resource, oldest first.
func (s *player) list(resource string) (*kind.Def, []kind.Object, error) {
	for _, def := range s.cluster.Server.Resources() {
		if def.Hub != nil || (def.Plural != resource && def.Singular != resource && !slices.Contains(def.Short, resource)) {
			continue
		}
		v, err := s.cluster.Client.View(s.Context(), def.Resource())
		if err != nil {
			return nil, nil, err
		}
		objects := slices.Collect(v.List(""))
		slices.SortStableFunc(objects, func(a, b kind.Object) int {
			return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
		})
		for _, o := range objects {
			s.registerName(o)
		}
		return def, objects, nil
	}
	return nil, nil, fmt.Errorf("no resource %s", resource)
}

// updatePods updates the Pods whose shown names match one of the patterns. change returns the subresource to write; empty for none.
func (s *player) updatePods(patterns []string, change func(*corev1.Pod) (sub string)) error {
	_, objects, err := s.list("pods")
	if err != nil {
		return err
	}
	matched := false
	for _, o := range objects {
		if !slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, s.shownName(o)); return ok }) {
			continue
		}
		matched = true
		pod := o.DeepCopyObject().(*corev1.Pod)
		sub := change(pod)
		if sub == "" {
			continue
		}
		pod.ResourceVersion = ""
		if _, err := s.cluster.Client.Update(s.Context(), gr.Pods, pod, sub); err != nil {
			return err
		}
	}
	if !matched {
		return fmt.Errorf("no pod matches %v", patterns)
	}
	return nil
}
