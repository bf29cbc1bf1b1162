package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node"
	"proa.dev/node/container"
	"proa.dev/node/eviction"
	"proa.dev/node/nodestatus"
	"proa.dev/node/nodetest"
	"proa.dev/proatest"
	"proa.dev/run"
	images "proa.dev/test/images/build"
)

// testNode is a cluster with one real node, called a, whose runtime was started by the test.
type testNode struct {
	*testing.T
	client.Client
	nodetest.Runtime
	config    node.Config
	agent     *node.Agent
	stopAgent func()
}

// startTestNode starts the cluster and the agent, whose configuration a test may change.
func startTestNode(t *testing.T, change func(*node.Config)) *testNode {
	t.Helper()
	rt := nodetest.StartRuntime(t)
	tool, err := images.Archives(t.Context(), "tool")
	if err != nil {
		t.Skipf("the image of the test cannot be built here: %v", err)
	}
	rt.Load(t, tool[0])
	address := netip.MustParseAddr("198.51.100.7")
	cluster := proatest.Start(t, proatest.Memory(),
		func(c *run.Config) { c.NodeRanges = []netip.Prefix{netip.PrefixFrom(address, address.BitLen())} })
	as := cluster.Server.Client(&user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup, user.AllAuthenticated}})
	r := &testNode{T: t, Client: cluster.Client, Runtime: rt, config: node.Config{
		Config: nodestatus.Config{Name: "a", Addresses: []netip.Addr{address}, Version: "v1.37.1", Data: rt.Dir},
		Client: as, Dir: filepath.Join(rt.Dir, "n"), Runtime: rt.Socket,
		Issue: nodestatus.RequestCertificates(func() client.Client { return as }, certificatesv1.KubeletServingSignerName),
		// The test must not depend on how full the disk of this machine is.
		Eviction: eviction.Settings{Hard: map[string]string{"memory.available": "1Mi"}}, ImageHigh: 100, ImageLow: 99,
		DNS: container.DNS{Domain: "cluster.local", ResolvConf: container.FindResolvConf()},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}}
	if change != nil {
		change(&r.config)
	}
	t.Cleanup(func() {
		if err := node.Purge(context.WithoutCancel(t.Context()), r.config.Dir, r.config.Log); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
	r.startAgent()
	t.Cleanup(func() { r.stopAgent() })
	t.Cleanup(r.removePods)
	return r
}

// startAgent starts an agent, and waits until the node is ready.
func (r *testNode) startAgent() {
	r.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
	a, err := node.Start(ctx, r.config)
	if err != nil {
		stop()
		r.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			r.Errorf("the agent has ended: %v", err)
		}
	})
	r.agent, r.stopAgent = a, sync.OnceFunc(func() { stop(); wg.Wait() })
	r.eventually("the node is ready", func() bool {
		n := a.Node()
		return n != nil && ready(n.Status.Conditions)
	})
	r.eventually("the default service account exists", func() bool {
		_, err := r.Get(ctx, gr.ServiceAccounts, "default", "default", "")
		return err == nil
	})
}

// restartAgent stops the agent and starts another one.
func (r *testNode) restartAgent() {
	r.Helper()
	r.stopAgent()
	r.startAgent()
}

func ready(all []corev1.NodeCondition) bool {
	for _, c := range all {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// eventually waits up to a minute until a condition is true.
func (r *testNode) eventually(what string, is func() bool) {
	r.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not within a minute: %s", what)
		}
	}
}

// create creates an object from YAML.
func create[T kind.Object](r *testNode, on schema.GroupResource, into T, text string) T {
	r.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		r.Fatal(err)
	}
	o, err := r.Create(r.Context(), on, into)
	if err != nil {
		r.Fatal(err)
	}
	return o.(T)
}

// runPod creates a Pod on the node, with one container of the given YAML. Without args, the container prints its environment and
// keeps running.
func (r *testNode) runPod(name, fields string) {
	r.Helper()
	if !strings.Contains(fields, "args:") {
		fields = "args: [show, -stay]\n    " + fields
	}
	create(r, gr.Pods, &corev1.Pod{}, fmt.Sprintf(`
metadata: {name: %s, namespace: default}
spec:
  nodeName: a
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: proa.test/tool:1
    %s
`, name, fields))
}

// getPod returns a Pod, or nil if it does not exist.
func (r *testNode) getPod(name string) *corev1.Pod {
	r.Helper()
	o, err := r.Get(r.Context(), gr.Pods, "default", name, "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.Fatal(err)
	}
	return o.(*corev1.Pod)
}

// awaitPod waits until a condition of a Pod is true.
func (r *testNode) awaitPod(name, what string, is func(*corev1.Pod) bool) (p *corev1.Pod) {
	r.Helper()
	defer func() {
		if r.Failed() && p != nil {
			r.Logf("%s is %+v", name, p.Status)
		}
	}()
	r.eventually(name+" "+what, func() bool {
		p = r.getPod(name)
		return p != nil && is(p)
	})
	return p
}

func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready
}

func failed(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }

// awaitRejection waits until the node has rejected a Pod, and removes it.
func (r *testNode) awaitRejection(name, reason, message string) {
	r.Helper()
	p := r.awaitPod(name, "is rejected", failed)
	if p.Status.Reason != reason || p.Status.Message != message {
		r.Errorf("%s: %s: %s\nwant %s: %s", name, p.Status.Reason, p.Status.Message, reason, message)
	}
	r.removePod(name)
}

// removePod deletes a Pod, and waits until it does not exist.
func (r *testNode) removePod(name string) {
	r.Helper()
	if err := r.Delete(context.WithoutCancel(r.Context()), gr.Pods, "default", name, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	r.eventually(name+" is deleted", func() bool {
		_, err := r.Get(context.WithoutCancel(r.Context()), gr.Pods, "default", name, "")
		return apierrors.IsNotFound(err)
	})
}

// removePods deletes all Pods.
func (r *testNode) removePods() {
	all, err := r.View(context.WithoutCancel(r.Context()), gr.Pods)
	if err != nil {
		r.Error(err)
		return
	}
	for o := range all.List("default") {
		r.removePod(o.GetName())
	}
}

// containerLog returns the log of the container of a Pod.
func (r *testNode) containerLog(name string) string {
	r.Helper()
	files, err := filepath.Glob(filepath.Join(r.config.Dir, "logs", "pods", "default_"+name+"_*", "c", "0.log"))
	if err != nil {
		r.Fatal(err)
	}
	if len(files) == 0 {
		return ""
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// expectLog waits until the log of a Pod contains lines.
func (r *testNode) expectLog(name string, lines ...string) {
	r.Helper()
	var text string
	for _, line := range lines {
		r.eventually(fmt.Sprintf("%q in the log of %s, which is\n%s", line, name, text), func() bool {
			text = r.containerLog(name)
			return strings.Contains(text, line)
		})
	}
}
