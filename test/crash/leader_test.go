package crash

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"proa.dev/test/upstream"
)

const replicas = 60

// TestLeaderIsKilledDuringRollout kills the leader of two servers on one etcd during a rollout, and checks that the other one takes
// over two seconds after the last renewal that it saw, and that no Pod is created twice.
func TestLeaderIsKilledDuringRollout(t *testing.T) {
	etcd := startEtcd(t, 1)
	a, b := newCluster(t), newCluster(t)
	a.args = []string{"--etcd-servers", etcd.urls(), "--simulate", "5"}
	b.args = a.args
	a.start()
	first := (&rollout{T: t, client: connect(t, a)}).leader()
	// Servers of one cluster share their keys.
	if err := os.CopyFS(filepath.Join(b.dir, "pki"), os.DirFS(filepath.Join(a.dir, "pki"))); err != nil {
		t.Fatal(err)
	}
	b.start()
	r := &rollout{T: t, client: connect(t, b)}
	r.create()
	r.until("the Deployment is available", func(d *unstructured.Unstructured) bool { return status(d, "availableReplicas") == replicas })
	if r.leader() != first { // on a busy machine the second may lead by now
		a, b = b, a
		r.client = connect(t, b)
	}
	stop := r.watch()
	r.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:2"}]}}}}`)
	r.until("some Pods are new", func(d *unstructured.Unstructured) bool { return status(d, "updatedReplicas") >= 5 })

	leader := r.leader()
	a.kill()
	killed := time.Now()
	for r.leader() == leader {
		if time.Since(killed) > 10*time.Second {
			t.Fatal("no server took over in ten seconds")
		}
		time.Sleep(5 * time.Millisecond) // the time depends on another process
	}
	took := time.Since(killed)
	limit := 8 * time.Second // two seconds after the last renewal, and some time for a busy machine
	if os.Getenv("PROA_OUTAGES") != "" {
		limit = 3 * time.Second
	}
	if took >= limit {
		t.Errorf("the other server leads after %v, want two seconds", took)
	}
	r.until("the rollout is complete", func(d *unstructured.Unstructured) bool {
		return status(d, "updatedReplicas") == replicas && status(d, "availableReplicas") == replicas && status(d, "replicas") == replicas
	})
	stop()
	r.check()
	t.Logf("the other server led after %v", took.Round(time.Millisecond))
}

// TestLeasesOfEnabledControllers checks that a server that runs no scheduler and none of the controllers of upstream's controller
// manager does not hold their Leases.
func TestLeasesOfEnabledControllers(t *testing.T) {
	c := newCluster(t)
	c.args = []string{"--etcd-servers", startEtcd(t, 1).urls(), "--simulate", "1", "--controllers", "simulated-nodes,simulated-pods"}
	c.start()
	leases := connect(t, c).Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1",
		Resource: "leases"}).Namespace("kube-system")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		l, err := leases.Get(t.Context(), "proa-controllers", metav1.GetOptions{})
		if err == nil {
			if holder, _, _ := unstructured.NestedString(l.Object, "spec", "holderIdentity"); holder != "" {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no server holds the Lease proa-controllers: %v %v", l, err)
		}
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if _, err := leases.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the Lease %s: %v, want that there is none", name, err)
		}
	}
}

func connect(t *testing.T, c *cluster) dynamic.Interface {
	t.Helper()
	config, err := upstream.LoadConfig(filepath.Join(c.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// rollout is a Deployment, and what a watch has shown of its Pods.
type rollout struct {
	*testing.T
	client dynamic.Interface

	mu      sync.Mutex // guards what follows
	made    map[string]map[types.UID]bool
	current map[types.UID]bool
	maxPods int
}

func deployments() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}

func (r *rollout) create() {
	r.Helper()
	_, err := r.client.Resource(deployments()).Namespace("default").Create(r.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"replicas": int64(replicas), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "nginx"}}},
			},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rollout) patch(text string) {
	r.Helper()
	if _, err := r.client.Resource(deployments()).Namespace("default").Patch(r.Context(), "web", types.StrategicMergePatchType,
		[]byte(text), metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
}

func status(d *unstructured.Unstructured, field string) int64 {
	n, _, _ := unstructured.NestedInt64(d.Object, "status", field)
	return n
}

func (r *rollout) until(what string, holds func(*unstructured.Unstructured) bool) {
	r.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		d, err := r.client.Resource(deployments()).Namespace("default").Get(r.Context(), "web", metav1.GetOptions{})
		if err == nil && d.GetGeneration() == status(d, "observedGeneration") && holds(d) {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("%s: not in two minutes; last: %v %v", what, d, err)
		}
	}
}

func (r *rollout) leader() string {
	r.Helper()
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	l, err := r.client.Resource(leases).Namespace("kube-system").Get(r.Context(), "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	holder, _, _ := unstructured.NestedString(l.Object, "spec", "holderIdentity")
	return holder
}

// watch records every Pod that is created from now on, and the highest number of Pods at a time, until it is stopped.
func (r *rollout) watch() (stop func()) {
	r.Helper()
	pods := r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default")
	r.made, r.current = map[string]map[types.UID]bool{}, map[types.UID]bool{}
	ctx, cancel := context.WithCancel(r.Context())
	w, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ev := range w.ResultChan() {
			if o, ok := ev.Object.(*unstructured.Unstructured); ok {
				r.record(string(ev.Type), o)
			}
		}
	})
	return func() {
		r.Helper()
		r.waitForWatch(pods)
		cancel()
		w.Stop()
		wg.Wait()
	}
}

// waitForWatch waits until the watch has shown all existing Pods, and so all that were created before them.
func (r *rollout) waitForWatch(pods dynamic.ResourceInterface) {
	r.Helper()
	list, err := pods.List(r.Context(), metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !r.seen(list); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatal("the watch has not shown all Pods in a minute")
		}
	}
}

func (r *rollout) seen(list *unstructured.UnstructuredList) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list.Items {
		o := &list.Items[i]
		if !r.made[o.GetLabels()["pod-template-hash"]][o.GetUID()] {
			return false
		}
	}
	return true
}

func (r *rollout) record(what string, o *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hash := o.GetLabels()["pod-template-hash"]
	if what == "DELETED" || o.GetDeletionTimestamp() != nil {
		delete(r.current, o.GetUID())
		return
	}
	if r.made[hash] == nil {
		r.made[hash] = map[types.UID]bool{}
	}
	r.made[hash][o.GetUID()] = true
	r.current[o.GetUID()] = true
	r.maxPods = max(r.maxPods, len(r.current))
}

// check checks that no Pod was created twice: each template has as many Pods as replicas, and there were never more than the surge
// allows.
func (r *rollout) check() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.made) != 2 {
		r.Errorf("Pods of %d templates were seen, want 2", len(r.made))
	}
	for hash, pods := range r.made {
		if len(pods) != replicas {
			r.Errorf("%d Pods of template %s were made, want %d", len(pods), hash, replicas)
		}
	}
	if surge := replicas + replicas/4; r.maxPods > surge {
		r.Errorf("there were %d Pods at a time, want at most %d", r.maxPods, surge)
	}
}
