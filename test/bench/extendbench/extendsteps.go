package extendbench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
)

// rate measures the creates of ConfigMaps a second.
func (t *extendTrial) rate(ctx context.Context, what string) error {
	_, rate, err := benchrun.Workers(t.set.Parallel, t.set.Window, 0,
		func(i int) error { return t.Create(ctx, t.ns, fmt.Sprintf("cm-%06d", i)) })
	if err != nil {
		return err
	}
	t.r.Add(fmt.Sprintf("create through %s, %d-way", what, t.set.Parallel), "/s", rate, benchrun.Higher)
	return nil
}

// refuses waits until a ConfigMap that should be refused is: then the policy or webhook is in effect.
func (t *extendTrial) refuses(ctx context.Context) error {
	return t.until(ctx, func() error {
		err := t.Create(ctx, t.ns, "forbidden")
		if err == nil {
			_ = t.Remove(ctx, t.ns, "forbidden")
			return errors.New("what should be refused is not")
		}
		return nil
	})
}

func configMapRule() []object {
	return []object{{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"},
		"resources": []string{"configmaps"}}}
}

func (t *extendTrial) policy(ctx context.Context) error {
	policy := object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": object{"name": "bench"},
		"spec": object{
			"failurePolicy": "Fail", "matchConstraints": object{"resourceRules": configMapRule()},
			"validations": []object{{"expression": "object.metadata.name != 'forbidden' && size(object.data) < 10"}},
		},
	}
	binding := object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": object{"name": "bench"},
		"spec": object{"policyName": "bench", "validationActions": []string{"Deny"}},
	}
	if err := errors.Join(t.post(ctx, admissionPath+"validatingadmissionpolicies", policy),
		t.post(ctx, admissionPath+"validatingadmissionpolicybindings", binding)); err != nil {
		return err
	}
	if err := t.refuses(ctx); err != nil {
		return err
	}
	return t.rate(ctx, "one policy")
}

// review is what a webhook of this tool reads of an AdmissionReview.
type review struct {
	Request struct {
		UID  string `json:"uid"`
		Name string `json:"name"`
	} `json:"request"`
}

func (t *extendTrial) webhook(ctx context.Context) error {
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object{
			"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
			"response": object{"uid": in.Request.UID, "allowed": in.Request.Name != "forbidden"},
		})
	}))
	hook.EnableHTTP2 = true
	hook.StartTLS()
	defer hook.Close()
	trust := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	config := object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": object{"name": "bench"},
		"webhooks": []object{{
			"name": "bench.example.com", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None", "rules": configMapRule(),
			"clientConfig": object{"url": hook.URL + "/review", "caBundle": trust},
		}},
	}
	if err := t.post(ctx, admissionPath+"validatingwebhookconfigurations", config); err != nil {
		return err
	}
	if err := t.refuses(ctx); err != nil {
		return err
	}
	return t.rate(ctx, "one local webhook")
}

// things creates custom objects for a time, or a number of them.
func (t *extendTrial) things(ctx context.Context, window time.Duration, limit int) (float64, error) {
	_, rate, err := benchrun.Workers(t.set.Parallel, window, limit, func(i int) error {
		return t.post(ctx, thingsPath(0, t.ns), thing(0, fmt.Sprintf("thing-%d-%06d", limit, i)))
	})
	return rate, err
}

func (t *extendTrial) objects(ctx context.Context) error {
	if err := t.define(ctx, 0, 5); err != nil {
		return err
	}
	if _, err := t.things(ctx, time.Hour, 100); err != nil {
		return err
	}
	rate, err := t.things(ctx, t.set.Window, 0)
	if err != nil {
		return err
	}
	t.r.Add(fmt.Sprintf("create of a custom object with five rules, %d-way", t.set.Parallel), "/s", rate, benchrun.Higher)
	if t.ns, err = t.Namespace(ctx, "list"); err != nil {
		return err
	}
	if _, err := t.things(ctx, time.Hour, t.set.Objects); err != nil {
		return err
	}
	var lists, watches []time.Duration
	for range 10 {
		start := time.Now()
		if _, err := t.send(ctx, http.MethodGet, thingsPath(0, t.ns), nil); err != nil {
			return err
		}
		lists = append(lists, time.Since(start))
		took, err := t.firstEvents(ctx, t.set.Objects)
		if err != nil {
			return err
		}
		watches = append(watches, took)
	}
	t.r.Add(fmt.Sprintf("list of %d custom objects, p50", t.set.Objects), "ms", benchrun.Millis(lists, 50), benchrun.Lower)
	t.r.Add(fmt.Sprintf("watch begins with %d custom objects, p50", t.set.Objects), "ms", benchrun.Millis(watches, 50), benchrun.Lower)
	if err := wait.Sleep(ctx, t.set.Settle); err != nil {
		return err
	}
	return benchrun.AddMemory(t.r, t.pids, fmt.Sprintf("with %d custom objects", t.set.Objects))
}

// firstEvents opens a watch that begins with the existing objects, and returns the time until all of them have arrived.
func (t *extendTrial) firstEvents(ctx context.Context, n int) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.Host+thingsPath(0, t.ns)+"?watch=true&resourceVersion=0", nil)
	if err != nil {
		return 0, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	reader := bufio.NewReaderSize(resp.Body, 1<<16)
	for range n {
		for {
			part, err := reader.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return 0, err
			}
			if bytes.HasSuffix(part, []byte("\n")) {
				break
			}
		}
	}
	return time.Since(start), nil
}

// idleAfter is the time after which a process is idle, whatever it did before: proa returns garbage once a minute.
const idleAfter = 75 * time.Second

// definitions measures what definitions cost whose resources have no objects.
func (t *extendTrial) definitions(ctx context.Context) error {
	if err := wait.Sleep(ctx, t.set.Settle); err != nil {
		return err
	}
	before, err := benchrun.ReadUsage(t.pids)
	if err != nil {
		return err
	}
	const count = 1000
	start := time.Now()
	_, _, err = benchrun.Workers(8, time.Hour, count, func(i int) error { return t.post(ctx, definitionsPath, definition(i, 2)) })
	if err != nil {
		return err
	}
	if err := t.until(ctx, func() error {
		_, err := t.send(ctx, http.MethodGet, thingsPath(count-1, "default"), nil)
		return err
	}); err != nil {
		return err
	}
	t.r.Add("1000 definitions, until their objects are served", "ms", float64(time.Since(start).Milliseconds()), benchrun.Lower)
	if err := wait.Sleep(ctx, idleAfter); err != nil {
		return err
	}
	after, err := benchrun.ReadUsage(t.pids)
	if err != nil {
		return err
	}
	if err := benchrun.AddMemory(t.r, t.pids, "with 1000 definitions"); err != nil {
		return err
	}
	t.r.Add("memory (anonymous) for each of 1000 definitions", "KiB", float64(after.Anon-before.Anon)/1024/count, benchrun.Lower)
	return nil
}
