package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/test/upstream"
)

// door is what measurements of custom objects, policies and webhooks use: plain requests with JSON, for both systems alike.
type door struct {
	*client
	http *http.Client
	user string // whom the administrator speaks for; empty for himself
}

// send makes a request and returns the body of its answer, which must be a success.
func (d *door) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if d.user != "" {
		req.Header.Set("Impersonate-User", d.user)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = &refused{resp.StatusCode, string(answer[:min(len(answer), 300)])}
	}
	return answer, err
}

// refused is an answer that is no success.
type refused struct {
	code int
	text string
}

func (r *refused) Error() string { return fmt.Sprintf("status %d: %s", r.code, r.text) }

func (d *door) post(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = d.send(ctx, http.MethodPost, path, body)
	return err
}

type object = map[string]any

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	admissionPath   = "/apis/admissionregistration.k8s.io/v1/"
)

// definition is one with two versions, each with ten fields and as many CEL rules as asked for.
func definition(n, rules int) object {
	fields := object{}
	for i := range 10 {
		fields[fmt.Sprintf("field%d", i)] = object{"type": "string", "maxLength": 64}
	}
	fields["count"] = object{"type": "integer"}
	var checks []object
	for i := range rules {
		checks = append(checks, object{"rule": fmt.Sprintf("self.field%d.startsWith('value') && self.count >= %d", i, i), "message": "field and count must fit"})
	}
	version := func(name string, stored bool) object {
		spec := object{"type": "object", "required": []string{"count"}, "properties": fields, "x-kubernetes-validations": checks}
		return object{"name": name, "served": true, "storage": stored, "schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{"spec": spec}}}}
	}
	plural, kind := fmt.Sprintf("things%04d", n), fmt.Sprintf("Thing%04d", n)
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": plural + ".bench.example.com"},
		"spec": object{
			"group": "bench.example.com", "scope": "Namespaced", "names": object{"plural": plural, "kind": kind},
			"versions": []object{version("v1", true), version("v1beta1", false)},
		},
	}
}

// thing is an object of a definition.
func thing(n int, name string) object {
	fields := object{"count": 100}
	for i := range 10 {
		fields[fmt.Sprintf("field%d", i)] = fmt.Sprintf("value %d of this object", i)
	}
	return object{"apiVersion": "bench.example.com/v1", "kind": fmt.Sprintf("Thing%04d", n), "metadata": object{"name": name}, "spec": fields}
}

func thingsPath(n int, namespace string) string {
	return fmt.Sprintf("/apis/bench.example.com/v1/namespaces/%s/things%04d", namespace, n)
}

// define makes a definition and waits until its objects are served.
func (d *door) define(ctx context.Context, n, rules int) error {
	if err := d.post(ctx, definitionsPath, definition(n, rules)); err != nil {
		return fmt.Errorf("definition %d: %w", n, err)
	}
	return d.until(ctx, func() error {
		_, err := d.send(ctx, http.MethodGet, thingsPath(n, "default"), nil)
		return err
	})
}

// until repeats something that is not yet so.
func (d *door) until(ctx context.Context, do func() error) error {
	// Upstream takes minutes to serve a thousand definitions that come at once.
	deadline := time.Now().Add(4 * time.Minute)
	for {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// extend is the suite of what users add to the API. Each measurement has a system of its own.
func extend(ctx context.Context, t *subject, r *result, set settings) error {
	if t.front == nil {
		return errors.New("this suite starts the systems itself")
	}
	for _, s := range extendSteps() {
		if !set.wanted(s.name) {
			continue
		}
		progress("%s: %s", t.name, s.name)
		if err := extendStep(ctx, t, r, set, s); err != nil {
			r.failed(s.name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// extendTrial is one measurement of the suite.
type extendTrial struct {
	*door
	r          *result
	set        settings
	pids       []int
	ns         string
	kubeconfig string
}

type extending struct {
	name string
	run  func(*extendTrial, context.Context) error
}

func extendSteps() []extending {
	return []extending{
		{"create through a policy", (*extendTrial).policy},
		{"create through a webhook", (*extendTrial).webhook},
		{"custom objects", (*extendTrial).objects},
		{"flood", (*extendTrial).flood},
		{"1000 definitions", (*extendTrial).definitions},
	}
}

func extendStep(ctx context.Context, t *subject, r *result, set settings, s extending) error {
	system, err := t.front(ctx)
	if err != nil {
		return err
	}
	defer system.Stop()
	c, err := newClient(system.Kubeconfig)
	if err != nil {
		return err
	}
	config, err := upstream.LoadConfig(system.Kubeconfig)
	if err != nil {
		return err
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	trial := &extendTrial{door: &door{client: c, http: h}, r: r, set: set, pids: system.Pids(), kubeconfig: system.Kubeconfig}
	if trial.ns, err = c.namespace(ctx, "ext"); err != nil {
		return err
	}
	return s.run(trial, ctx)
}
