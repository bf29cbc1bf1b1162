package node_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/gr"
	"proa.dev/node"
	"proa.dev/node/topology"
)

// getFromAgent sends a request to the kubelet API of the agent, as the API server does.
func (r *testNode) getFromAgent(path string) string {
	r.Helper()
	w := httptest.NewRecorder()
	r.agent.InProcessHandler("kubernetes-admin", []string{user.SystemPrivilegedGroup}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != 200 {
		r.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// TestKubeletAPI checks the kubelet API of the agent.
func TestKubeletAPI(t *testing.T) {
	r := startTestNode(t, func(c *node.Config) {
		c.MaxPods, c.ResourceManagers.Policy, c.UnsafeSysctls = 55, topology.BestEffort, []string{"net.core.somaxconn"}
	})
	var config struct {
		Kubeletconfig struct {
			MaxPods               int               `json:"maxPods"`
			TopologyManagerPolicy string            `json:"topologyManagerPolicy"`
			EvictionHard          map[string]string `json:"evictionHard"`
			AllowedUnsafeSysctls  []string          `json:"allowedUnsafeSysctls"`
			Endpoint              string            `json:"containerRuntimeEndpoint"`
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal([]byte(r.getFromAgent("/configz")), &config); err != nil {
		t.Fatal(err)
	}
	c := config.Kubeletconfig
	if c.MaxPods != 55 || c.TopologyManagerPolicy != "best-effort" || c.EvictionHard["memory.available"] != "1Mi" ||
		len(c.AllowedUnsafeSysctls) != 1 || c.Endpoint != "unix://"+r.Socket {
		t.Errorf("the settings are %+v", c)
	}
	r.runPod("probed", `readinessProbe: {exec: {command: [/tool, show]}, periodSeconds: 1}`)
	p := r.awaitPod("probed", "runs", running)
	want := `prober_probe_total{container="c",namespace="default",pod="probed",pod_uid="` + string(p.UID) + `",probe_type="Readiness",result="successful"}`
	if got := r.getFromAgent("/metrics/probes"); !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
}

// TestNetworkNotReady removes the network of Pods: a Pod waits, and its Events say why; a Pod with the host's network starts.
func TestNetworkNotReady(t *testing.T) {
	r := startTestNode(t, nil)
	conf := filepath.Join(r.Dir, "net", "10-testnet.conflist")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	r.eventually("the Node is not ready", func() bool { return !ready(r.agent.Node().Status.Conditions) })
	tolerant := "\n  tolerations: [{operator: Exists}]\n"
	r.runPod("waiting", tolerant)
	r.runPod("host", tolerant+"  hostNetwork: true\n")
	r.awaitPod("host", "runs", running)
	const why = "network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	r.eventually("the Event with the reason", func() bool {
		all, err := r.View(t.Context(), gr.Events)
		if err != nil {
			t.Fatal(err)
		}
		for o := range all.List("default") {
			if e := o.(*corev1.Event); e.InvolvedObject.Name == "waiting" && e.Reason == "NetworkNotReady" {
				if e.Message != why || e.Type != corev1.EventTypeWarning {
					t.Fatalf("%s %s", e.Type, e.Message)
				}
				return true
			}
		}
		return false
	})
	if err := os.WriteFile(conf, text, 0o644); err != nil {
		t.Fatal(err)
	}
	r.awaitPod("waiting", "runs", running)
}
