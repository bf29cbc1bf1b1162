// Package extendbench measures custom resources, admission policies and webhooks, and how a user who floods the server
// slows others down.
package extendbench

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

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
	"proa.dev/test/upstream"
)

// jsonClient sends requests with JSON, for both systems alike, to measure custom objects, policies and webhooks.
type jsonClient struct {
	*benchrun.Client
	http *http.Client
	user string // whom the administrator speaks for; empty for himself
}

// send makes a request and returns the body of its answer, which must be a success.
func (d *jsonClient) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.Host+path, bytes.NewReader(body))
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

// refused is the error for an answer that is not a success.
type refused struct {
	code int
	text string
}

func (r *refused) Error() string { return fmt.Sprintf("status %d: %s", r.code, r.text) }

func (d *jsonClient) post(ctx context.Context, path string, object any) error {
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

// definition returns a CustomResourceDefinition with two versions, each with ten fields and some CEL rules.
func definition(n, rules int) object {
	fields := object{}
	for i := range 10 {
		fields[fmt.Sprintf("field%d", i)] = object{"type": "string", "maxLength": 64}
	}
	fields["count"] = object{"type": "integer"}
	var checks []object
	for i := range rules {
		checks = append(checks, object{"rule": fmt.Sprintf("self.field%d.startsWith('value') && self.count >= %d", i, i),
			"message": "field and count must fit"})
	}
	version := func(name string, stored bool) object {
		spec := object{"type": "object", "required": []string{"count"}, "properties": fields, "x-kubernetes-validations": checks}
		return object{"name": name, "served": true, "storage": stored,
			"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{"spec": spec}}}}
	}
	plural, kind := fmt.Sprintf("things%04d", n), fmt.Sprintf("Thing%04d", n)
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": plural + ".bench.example.com"},
		"spec": object{
			"group": "bench.example.com", "scope": "Namespaced", "names": object{"plural": plural, "kind": kind},
			"versions": []object{version("v1", true), version("v1beta1", false)},
		},
	}
}

// thing returns an object of a definition.
func thing(n int, name string) object {
	fields := object{"count": 100}
	for i := range 10 {
		fields[fmt.Sprintf("field%d", i)] = fmt.Sprintf("value %d of this object", i)
	}
	return object{"apiVersion": "bench.example.com/v1", "kind": fmt.Sprintf("Thing%04d", n), "metadata": object{"name": name},
		"spec": fields}
}

func thingsPath(n int, namespace string) string {
	return fmt.Sprintf("/apis/bench.example.com/v1/namespaces/%s/things%04d", namespace, n)
}

// define creates a definition and waits until its objects are served.
func (d *jsonClient) define(ctx context.Context, n, rules int) error {
	if err := d.post(ctx, definitionsPath, definition(n, rules)); err != nil {
		return fmt.Errorf("definition %d: %w", n, err)
	}
	return d.until(ctx, func() error {
		_, err := d.send(ctx, http.MethodGet, thingsPath(n, "default"), nil)
		return err
	})
}

// until repeats do until it succeeds.
func (d *jsonClient) until(ctx context.Context, do func() error) error {
	// Upstream takes minutes to serve a thousand definitions that come at once.
	deadline := time.Now().Add(4 * time.Minute)
	for {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Run measures what users add to the API. Each measurement has a system of its own.
func Run(ctx context.Context, t *benchrun.Subject, r *benchrun.Result, set benchrun.Settings) error {
	if t.Front == nil {
		return errors.New("this suite starts the systems itself")
	}
	for _, s := range ExtendSteps() {
		if !set.Wanted(s.Name) {
			continue
		}
		benchrun.Progress("%s: %s", t.Name, s.Name)
		if err := extendStep(ctx, t, r, set, s); err != nil {
			r.AddFailure(s.Name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// extendTrial is one measurement of the suite.
type extendTrial struct {
	*jsonClient
	r          *benchrun.Result
	set        benchrun.Settings
	pids       []int
	ns         string
	kubeconfig string
}

type extending struct {
	Name string
	run  func(*extendTrial, context.Context) error
}

// ExtendSteps returns the measurements of the suite.
func ExtendSteps() []extending {
	return []extending{
		{"create through a policy", (*extendTrial).policy},
		{"create through a webhook", (*extendTrial).webhook},
		{"custom objects", (*extendTrial).objects},
		{"flood", (*extendTrial).flood},
		{"1000 definitions", (*extendTrial).definitions},
	}
}

func extendStep(ctx context.Context, t *benchrun.Subject, r *benchrun.Result, set benchrun.Settings, s extending) error {
	system, err := t.Front(ctx)
	if err != nil {
		return err
	}
	defer system.Stop()
	c, err := benchrun.NewClient(system.Kubeconfig)
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
	trial := &extendTrial{jsonClient: &jsonClient{Client: c, http: h}, r: r, set: set, pids: system.Pids(), kubeconfig: system.Kubeconfig}
	if trial.ns, err = c.Namespace(ctx, "ext"); err != nil {
		return err
	}
	return s.run(trial, ctx)
}
