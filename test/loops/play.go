package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// system is a control plane under test, with its kubelets and its observer.
type system struct {
	api      *apiClient
	kubelets *kubelets
	observer *observer
	idleTime time.Duration
}

// player runs one scenario on one system.
type player struct {
	*system
	scenario *scenario
	record   *record
}

// record has the refusals that a scenario got, and the objects and Events at each snap.
type record struct {
	Answers []string `json:"answers"`
	Snaps   []snap   `json:"snaps"`
}

type snap struct {
	Name    string              `json:"name"`
	Objects map[string][]object `json:"objects"` // by kind and name, all made comparable
	Events  []string            `json:"events"`
}

// play runs the steps of a scenario.
func (s *system) play(ctx context.Context, sc *scenario) *record {
	p := &player{system: s, scenario: sc, record: &record{}}
	if err := p.create(ctx, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": sc.space()}}); err != nil {
		p.recordRefusal(step{args: []string{"namespace"}}, err)
	}
	// Pods need the default service account, which a controller creates.
	_ = p.until(ctx, "serviceaccounts/default", "metadata.name=default")
	for _, st := range sc.steps {
		if err := p.step(ctx, st); err != nil {
			p.recordRefusal(st, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return p.record
}

// recordRefusal adds the error of a step to the record.
func (p *player) recordRefusal(st step, err error) {
	p.record.Answers = append(p.record.Answers, fmt.Sprintf("line %d, %s: %v", st.line, st, err))
}

func (p *player) step(ctx context.Context, st step) error {
	arg := func(i int) string {
		if i < len(st.args) {
			return st.args[i]
		}
		return ""
	}
	switch st.args[0] {
	case "create":
		for _, o := range st.docs {
			if err := p.create(ctx, o); err != nil {
				return err
			}
		}
		return nil
	case "patch":
		return p.each(ctx, arg(1), func(path string, body object) error {
			kind := mergePatch
			if arg(2) == "status" {
				path, kind = path+"/status", strategicPatch
			}
			_, err := p.api.do(ctx, http.MethodPatch, path, kind, st.docs[0])
			return err
		})
	case "delete":
		return p.each(ctx, arg(1), func(path string, _ object) error {
			options := object{}
			if arg(2) != "" {
				options["propagationPolicy"] = arg(2)
			}
			_, err := p.api.do(ctx, http.MethodDelete, path, plainJSON, options)
			return err
		})
	case "evict":
		return p.each(ctx, arg(1), func(path string, pod object) error {
			_, err := p.api.do(ctx, http.MethodPost, path+"/eviction", plainJSON, object{
				"apiVersion": "policy/v1", "kind": "Eviction",
				"metadata": object{"name": text(pod, "metadata", "name"), "namespace": text(pod, "metadata", "namespace")},
			})
			return err
		})
	case "kubelet":
		p.kubelets.add(rule{p.scenario.space(), arg(1), st.args[2:]})
		return nil
	case "node":
		return p.addNodes(ctx, arg(1))
	case "silent":
		p.kubelets.silence(arg(1))
		return nil
	case "until":
		return p.until(ctx, arg(1), strings.Join(st.args[2:], " "))
	case "sleep":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		return wait(ctx, d)
	case "rest":
		_, err := p.observer.waitUntilIdle(ctx, p.scenario.space(), p.idleTime)
		return err
	case "snap":
		objects, err := p.observer.waitUntilIdle(ctx, p.scenario.space(), p.idleTime)
		if err == nil {
			p.record.Snaps = append(p.record.Snaps, canonical(strings.Join(st.args[1:], " "), objects, p.scenario))
		}
		return err
	}
	return fmt.Errorf("there is no step %q", st.args[0])
}

func (p *player) create(ctx context.Context, o object) error {
	where, err := findResource(func(x apiResource) bool { return x.kind == text(o, "kind") })
	if err != nil {
		return err
	}
	space := cmp.Or(text(o, "metadata", "namespace"), p.scenario.space())
	o = clone(o) // the scenario is run on the other system, too
	// "uid: configmaps/a" in an owner reference is replaced by the UID of that object.
	for _, ref := range items(o, "metadata", "ownerReferences") {
		resource, name, ok := strings.Cut(text(ref, "uid"), "/")
		if !ok {
			continue
		}
		owner, err := findResource(func(x apiResource) bool { return x.resource == resource })
		if err != nil {
			return err
		}
		at := p.scenario.space()
		if a, b, ok := strings.Cut(name, "@"); ok {
			name, at = a, b
		}
		got, err := p.api.do(ctx, http.MethodGet, owner.path(at, name), plainJSON, nil)
		if err != nil {
			return err
		}
		ref["uid"] = text(got, "metadata", "uid")
	}
	_, err = p.api.do(ctx, http.MethodPost, where.path(space), plainJSON, o)
	return err
}

// clone is a deep copy.
func clone(o object) (out object) {
	_ = json.Unmarshal([]byte(flat(o)), &out) // it came from JSON
	return out
}

// each calls do for an object, "pods/a", or for those of a selector, "pods/app=a", with "#0" for the first only.
func (p *player) each(ctx context.Context, which string, do func(path string, o object) error) error {
	resource, name, _ := strings.Cut(which, "/")
	where, err := findResource(func(x apiResource) bool { return x.resource == resource })
	if err != nil {
		return err
	}
	space := p.scenario.space()
	if a, b, ok := strings.Cut(name, "@"); ok {
		name, space = a, b
	}
	if !strings.Contains(name, "=") {
		return do(where.path(space, name), object{"metadata": object{"name": name, "namespace": space}})
	}
	selector, index, one := strings.Cut(name, "#")
	got, err := p.api.do(ctx, http.MethodGet, where.path(space)+"?labelSelector="+strings.ReplaceAll(selector, "=", "%3D"), plainJSON, nil)
	if err != nil {
		return err
	}
	all := items(got, "items")
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(cmp.Compare(text(a, "metadata", "creationTimestamp"), text(b, "metadata", "creationTimestamp")),
			cmp.Compare(text(a, "metadata", "name"), text(b, "metadata", "name")))
	})
	if one {
		i, err := strconv.Atoi(index)
		if err != nil || i >= len(all) {
			return fmt.Errorf("there are %d of %s", len(all), selector)
		}
		all = all[i : i+1]
	}
	var errs []error
	for _, o := range all {
		errs = append(errs, do(where.path(space, text(o, "metadata", "name")), o))
	}
	return errors.Join(errs...)
}

// until waits for a field of an object to have a value: "status.readyReplicas=3", or to be "gone".
func (p *player) until(ctx context.Context, which, want string) error {
	limit := time.Now().Add(untilLimit)
	keys, value, _ := strings.Cut(want, "=")
	got := ""
	for time.Now().Before(limit) {
		err := p.each(ctx, which, func(path string, _ object) error {
			o, err := p.api.do(ctx, http.MethodGet, path, plainJSON, nil)
			if err == nil {
				got = find(o, strings.Split(keys, "."))
			}
			return err
		})
		if r, ok := errors.AsType[*refusal](err); ok && r.code == http.StatusNotFound {
			got = "gone"
			if want == "gone" {
				return nil
			}
		}
		if got == value && want != "gone" {
			return nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("waited in vain, it is %q", got)
}

// find reads a field as text. A key of a list of conditions is a type, and its value the status.
func find(o any, keys []string) string {
	for i, k := range keys {
		if list, ok := o.([]any); ok {
			for _, e := range list {
				if text(e, "type") == k {
					if i+1 < len(keys) {
						return find(e, keys[i+1:])
					}
					return text(e, "status")
				}
			}
			return ""
		}
		o = at(o, k)
	}
	if o == nil {
		return ""
	}
	return fmt.Sprint(o)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
