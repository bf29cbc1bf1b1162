package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"proa.dev/test/upstream"
)

// object is an API object as JSON has it.
type object = map[string]any

// apiResource is the kind of objects and the path at which they are served.
type apiResource struct {
	kind, prefix, resource string
	global                 bool
}

// resources are the kinds that scenarios write or read.
func resources() []apiResource {
	const core, apps, batch = "/api/v1", "/apis/apps/v1", "/apis/batch/v1"
	return []apiResource{
		{"Namespace", core, "namespaces", true},
		{"Node", core, "nodes", true},
		{"PersistentVolume", core, "persistentvolumes", true},
		{"StorageClass", "/apis/storage.k8s.io/v1", "storageclasses", true},
		{"PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses", true},
		{"DeviceClass", "/apis/resource.k8s.io/v1", "deviceclasses", true},
		{"ResourceSlice", "/apis/resource.k8s.io/v1", "resourceslices", true},
		{"Pod", core, "pods", false},
		{"Service", core, "services", false},
		{"Endpoints", core, "endpoints", false},
		{"EndpointSlice", "/apis/discovery.k8s.io/v1", "endpointslices", false},
		{"ReplicationController", core, "replicationcontrollers", false},
		{"ReplicaSet", apps, "replicasets", false},
		{"Deployment", apps, "deployments", false},
		{"StatefulSet", apps, "statefulsets", false},
		{"DaemonSet", apps, "daemonsets", false},
		{"ControllerRevision", apps, "controllerrevisions", false},
		{"Job", batch, "jobs", false},
		{"CronJob", batch, "cronjobs", false},
		{"PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets", false},
		{"HorizontalPodAutoscaler", "/apis/autoscaling/v2", "horizontalpodautoscalers", false},
		{"PersistentVolumeClaim", core, "persistentvolumeclaims", false},
		{"ResourceClaim", "/apis/resource.k8s.io/v1", "resourceclaims", false},
		{"ResourceClaimTemplate", "/apis/resource.k8s.io/v1", "resourceclaimtemplates", false},
		{"ResourceQuota", core, "resourcequotas", false},
		{"ConfigMap", core, "configmaps", false},
		{"Secret", core, "secrets", false},
		{"ServiceAccount", core, "serviceaccounts", false},
		{"Event", core, "events", false},
	}
}

func findResource(match func(apiResource) bool) (apiResource, error) {
	for _, p := range resources() {
		if match(p) {
			return p, nil
		}
	}
	return apiResource{}, errors.New("no such kind or resource in resources")
}

// path is the path of a collection, or of one object where name is not empty.
func (p apiResource) path(namespace string, name ...string) string {
	parts := []string{p.prefix}
	if !p.global && namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	return strings.Join(append(append(parts, p.resource), name...), "/")
}

// apiClient is a client of a system with the credentials of its administrator.
type apiClient struct {
	client *http.Client
	host   string
}

func open(s *upstream.System) (*apiClient, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &apiClient{client, config.Host}, nil
}

// refusal is the error of an answer that is not a success: the code and the message that clients get.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.code, r.text) }

// patchTypes are the content types of patches, by the word scripts use.
const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	plainJSON      = "application/json"
)

// do sends a request, and reads the answer.
func (d *apiClient) do(ctx context.Context, method, path, content string, body any) (object, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.host+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", content)
	req.Header.Set("User-Agent", "loops")
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var out object
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, &refusal{resp.StatusCode, string(data)}
	}
	if resp.StatusCode >= 300 {
		r := &refusal{resp.StatusCode, text(out, "message")}
		for _, c := range items(out, "details", "causes") {
			r.text += fmt.Sprintf(" (%s %s: %s)", text(c, "reason"), text(c, "field"), text(c, "message"))
		}
		return nil, r
	}
	return out, nil
}

// list reads all objects of a kind, and adds apiVersion and kind to them, which list items do not have.
func (d *apiClient) list(ctx context.Context, p apiResource) ([]object, error) {
	got, err := d.do(ctx, http.MethodGet, p.path(""), plainJSON, nil)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", p.resource, err)
	}
	var out []object
	for _, item := range items(got, "items") {
		item["kind"] = p.kind
		out = append(out, item)
	}
	return out, nil
}

// at returns the value of an object at a path of keys.
func at(o any, keys ...string) any {
	for _, k := range keys {
		m, ok := o.(object)
		if !ok {
			return nil
		}
		o = m[k]
	}
	return o
}

// text returns the string of an object at a path.
func text(o any, keys ...string) string {
	s, _ := at(o, keys...).(string)
	return s
}

// items returns the list of objects at a path.
func items(o any, keys ...string) (out []object) {
	list, _ := at(o, keys...).([]any)
	for _, e := range list {
		if m, ok := e.(object); ok {
			out = append(out, m)
		}
	}
	return out
}
