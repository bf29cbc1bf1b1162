package main

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
)

// rate adds how many creates a second of ConfigMaps are answered.
func (t *extendTrial) rate(ctx context.Context, what string) error {
	_, rate, err := workers(t.set.parallel, t.set.window, 0, func(i int) error { return t.create(ctx, t.ns, fmt.Sprintf("cm-%06d", i)) })
	if err != nil {
		return err
	}
	t.r.add(fmt.Sprintf("create through %s, %d-way", what, t.set.parallel), "/s", rate, higher)
	return nil
}

// refuses waits until a ConfigMap is refused that should be: then what decides about it is in force.
func (t *extendTrial) refuses(ctx context.Context) error {
	return t.until(ctx, func() error {
		err := t.create(ctx, t.ns, "forbidden")
		if err == nil {
			_ = t.remove(ctx, t.ns, "forbidden")
			return errors.New("what should be refused is not")
		}
		return nil
	})
}

func configMapRule() []object {
	return []object{{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"}}}
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
	if err := errors.Join(t.post(ctx, admissionPath+"validatingadmissionpolicies", policy), t.post(ctx, admissionPath+"validatingadmissionpolicybindings", binding)); err != nil {
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

// things creates custom objects, as many as fit into a window or a number of them.
func (t *extendTrial) things(ctx context.Context, window time.Duration, limit int) (float64, error) {
	_, rate, err := workers(t.set.parallel, window, limit, func(i int) error {
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
	rate, err := t.things(ctx, t.set.window, 0)
	if err != nil {
		return err
	}
	t.r.add(fmt.Sprintf("create of a custom object with five rules, %d-way", t.set.parallel), "/s", rate, higher)
	if t.ns, err = t.namespace(ctx, "list"); err != nil {
		return err
	}
	if _, err := t.things(ctx, time.Hour, t.set.objects); err != nil {
		return err
	}
	var lists, watches []time.Duration
	for range 10 {
		start := time.Now()
		if _, err := t.send(ctx, http.MethodGet, thingsPath(0, t.ns), nil); err != nil {
			return err
		}
		lists = append(lists, time.Since(start))
		took, err := t.firstEvents(ctx, t.set.objects)
		if err != nil {
			return err
		}
		watches = append(watches, took)
	}
	t.r.add(fmt.Sprintf("list of %d custom objects, p50", t.set.objects), "ms", millis(lists, 50), lower)
	t.r.add(fmt.Sprintf("watch begins with %d custom objects, p50", t.set.objects), "ms", millis(watches, 50), lower)
	if err := sleep(ctx, t.set.settle); err != nil {
		return err
	}
	return memory(t.r, t.pids, fmt.Sprintf("with %d custom objects", t.set.objects))
}

// firstEvents opens a watch that begins with the present, and takes the time until all of it has come.
func (t *extendTrial) firstEvents(ctx context.Context, n int) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.host+thingsPath(0, t.ns)+"?watch=true&resourceVersion=0", nil)
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

// rested is the time after which a process has come to rest, whatever it did before: proa gives back memory once a minute.
const rested = 75 * time.Second

// definitions measures what definitions cost whose resources have no objects.
func (t *extendTrial) definitions(ctx context.Context) error {
	if err := sleep(ctx, t.set.settle); err != nil {
		return err
	}
	before, err := read(t.pids)
	if err != nil {
		return err
	}
	const count = 1000
	start := time.Now()
	_, _, err = workers(8, time.Hour, count, func(i int) error { return t.post(ctx, definitionsPath, definition(i, 2)) })
	if err != nil {
		return err
	}
	if err := t.until(ctx, func() error {
		_, err := t.send(ctx, http.MethodGet, thingsPath(count-1, "default"), nil)
		return err
	}); err != nil {
		return err
	}
	t.r.add("1000 definitions, until their objects are served", "ms", float64(time.Since(start).Milliseconds()), lower)
	if err := sleep(ctx, rested); err != nil {
		return err
	}
	after, err := read(t.pids)
	if err != nil {
		return err
	}
	if err := memory(t.r, t.pids, "with 1000 definitions"); err != nil {
		return err
	}
	t.r.add("memory (anonymous) for each of 1000 definitions", "KiB", float64(after.anon-before.anon)/1024/count, lower)
	return nil
}
