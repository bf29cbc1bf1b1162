package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// rule is what the kubelets do with the Pods of a scenario that it matches; the last rule that matches is used.
type rule struct {
	space string
	match string   // "*", "label=value", "image=…" or "index=…"
	verb  []string // ready, running, pending, succeed, "fail N", and then maybe "keep": do not end deletions
}

// kubelets simulates all kubelets of a system: it renews the Leases of nodes, and writes the status of Pods.
type kubelets struct {
	api *apiClient

	mu     sync.Mutex
	rules  []rule
	silent map[string]bool // nodes whose Lease is not renewed
	ending bool            // between scenarios: deleted Pods fail before they are removed, as controllers with finalizers on them expect
}

func (k *kubelets) add(r rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = append(k.rules, r)
}

func (k *kubelets) silence(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent[node] = true
}

// reset forgets all rules.
func (k *kubelets) reset(ending bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules, k.silent, k.ending = nil, map[string]bool{}, ending
}

// failsWhenDeleted reports whether a Pod that is being deleted becomes Failed before it is removed.
func (k *kubelets) failsWhenDeleted(pod object) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ending && at(pod, "metadata", "finalizers") != nil
}

// verb returns what the last rule that matches a Pod does with it.
func (k *kubelets) verb(pod object) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := []string{"ready"}
	space, _, _ := strings.Cut(text(pod, "metadata", "namespace"), "--")
	for _, r := range k.rules {
		if r.space == space && matches(pod, r.match) {
			out = r.verb
		}
	}
	return out
}

func matches(pod object, match string) bool {
	key, value, _ := strings.Cut(match, "=")
	switch key {
	case "*":
		return true
	case "name":
		return text(pod, "metadata", "name") == value
	case "image":
		c := items(pod, "spec", "containers")
		return len(c) > 0 && text(c[0], "image") == value
	case "index":
		return text(pod, "metadata", "annotations", "batch.kubernetes.io/job-completion-index") == value
	}
	return text(pod, "metadata", "labels", key) == value
}

// update writes the next status of Pods and finishes deletions, and returns the namespaces to which it wrote.
func (k *kubelets) update(ctx context.Context, pods []object) (busy map[string]bool) {
	busy = map[string]bool{}
	for _, pod := range pods {
		if text(pod, "spec", "nodeName") == "" {
			continue
		}
		verb := k.verb(pod)
		path := "/api/v1/namespaces/" + text(pod, "metadata", "namespace") + "/pods/" + text(pod, "metadata", "name")
		var done bool
		switch {
		case at(pod, "metadata", "deletionTimestamp") != nil:
			if end := nextStatus(pod, []string{"fail", "137"}); end != nil && k.failsWhenDeleted(pod) {
				_, _ = k.api.do(ctx, http.MethodPatch, path+"/status", strategicPatch, object{"status": end})
			}
			if done = slices.Contains(verb, "keep"); !done {
				_, _ = k.api.do(ctx, http.MethodDelete, path, plainJSON, object{"gracePeriodSeconds": 0})
			}
		default:
			status := nextStatus(pod, verb)
			if done = status == nil; !done {
				_, _ = k.api.do(ctx, http.MethodPatch, path+"/status", strategicPatch, object{"status": status})
			}
		}
		if !done {
			busy[text(pod, "metadata", "namespace")] = true
		}
	}
	return busy
}

// nextStatus returns the next status of a Pod, or nil if it has its final one.
func nextStatus(pod object, verb []string) object {
	phase := text(pod, "status", "phase")
	if verb[0] == "pending" || phase == "Succeeded" || phase == "Failed" {
		return nil
	}
	if phase == "Pending" && verb[0] != "running" && verb[0] != "ready" {
		return status(pod, "Running", "False", nil)
	}
	switch verb[0] {
	case "running":
		if phase != "Running" || ready(pod) {
			return status(pod, "Running", "False", nil)
		}
	case "ready":
		if phase != "Running" || !ready(pod) {
			return status(pod, "Running", "True", nil)
		}
	case "succeed":
		return status(pod, "Succeeded", "False",
			object{"terminated": object{"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}})
	case "fail":
		code := 1
		if len(verb) > 1 {
			_, _ = fmt.Sscan(verb[1], &code)
		}
		return status(pod, "Failed", "False",
			object{"terminated": object{"exitCode": code, "reason": "Error", "startedAt": now(), "finishedAt": now()}})
	}
	return nil
}

func ready(pod object) bool {
	return slices.ContainsFunc(items(pod, "status", "conditions"), func(c object) bool {
		return text(c, "type") == "Ready" && text(c, "status") == "True"
	})
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// status returns the status that a kubelet writes for a Pod whose containers all have the same state.
func status(pod object, phase, isReady string, state object) object {
	if state == nil {
		state = object{"running": object{"startedAt": now()}}
	}
	reason := ""
	switch {
	case phase == "Succeeded":
		reason = "PodCompleted"
	case phase == "Failed":
		reason = "PodFailed"
	case isReady == "False":
		reason = "ContainersNotReady"
	}
	var conditions, containers []any
	for _, t := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"} {
		c := object{"type": t, "status": "True", "lastTransitionTime": now()}
		if (t == "Ready" || t == "ContainersReady") && isReady == "False" {
			c["status"], c["reason"] = "False", reason
		}
		conditions = append(conditions, c)
	}
	for _, c := range items(pod, "spec", "containers") {
		containers = append(containers, object{
			"name": text(c, "name"), "image": text(c, "image"), "imageID": "sha256:0", "restartCount": 0,
			"ready": isReady == "True", "started": phase == "Running", "state": state,
		})
	}
	out := object{"phase": phase, "conditions": conditions, "containerStatuses": containers, "hostIP": "10.9.0.1", "startTime": now()}
	if text(pod, "status", "podIP") == "" {
		uid := text(pod, "metadata", "uid")
		var n int
		_, _ = fmt.Sscanf(uid[:4], "%x", &n)
		ip := fmt.Sprintf("10.8.%d.%d", n>>8, n&255)
		out["podIP"], out["podIPs"] = ip, []any{object{"ip": ip}}
	}
	return out
}

// renew writes the Leases of all nodes until ctx ends.
func (k *kubelets) renew(ctx context.Context) {
	for {
		nodes, err := k.api.do(ctx, http.MethodGet, "/api/v1/nodes", plainJSON, nil)
		if err == nil {
			for _, n := range items(nodes, "items") {
				k.lease(ctx, text(n, "metadata", "name"), text(n, "metadata", "uid"))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

func (k *kubelets) lease(ctx context.Context, node, uid string) {
	k.mu.Lock()
	silent := k.silent[node]
	k.mu.Unlock()
	if silent {
		return
	}
	const all = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	spec := object{"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}
	if _, err := k.api.do(ctx, http.MethodPatch, all+"/"+node, mergePatch, object{"spec": spec}); err == nil {
		return
	}
	_, _ = k.api.do(ctx, http.MethodPost, all, plainJSON, object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
		"metadata": object{"name": node, "ownerReferences": []any{object{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}},
	})
}
