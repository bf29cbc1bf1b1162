package proatest_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// getOnly returns the only object of a resource in a namespace.
func getOnly[T kind.Object](t *testing.T, v client.View, namespace string) T {
	t.Helper()
	var found []kind.Object
	for o := range v.List(namespace) {
		found = append(found, o)
	}
	if len(found) != 1 {
		t.Fatalf("%d objects, want one: %v", len(found), found)
	}
	return found[0].(T)
}

func open(t *testing.T, c *proatest.Cluster, resource string) client.View {
	t.Helper()
	on := gr.Pods
	on.Resource = resource
	if resource == "replicasets" {
		on = gr.ReplicaSets
	}
	v, err := c.Client.View(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDeploymentInVirtualTime runs a Deployment to ready Pods in virtual time, and checks for each write which write caused it.
func TestDeploymentInVirtualTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.Simulate(3), proatest.InDir(dir))
		defer c.Stop()
		labels := map[string]string{"app": "web"}
		made, err := c.Client.Create(t.Context(), gr.Deployments, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		rs := getOnly[*appsv1.ReplicaSet](t, open(t, c, "replicasets"), "default")
		pod := getOnly[*corev1.Pod](t, open(t, c, "pods"), "default")
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("the Pod is on node %q and %s, want it to run", pod.Spec.NodeName, pod.Status.Phase)
		}
		if got := creation(t, c, rs.UID).CauseUID; got != made.GetUID() {
			t.Errorf("the ReplicaSet was caused by %q, want the Deployment %q", got, made.GetUID())
		}
		// While the nodes are not ready yet the scheduler writes a condition, so its binding need not be the second write.
		created := creation(t, c, pod.UID)
		if r := c.Server.HopsOf(pod.UID); !slices.ContainsFunc(r, func(x hop.Record) bool {
			return x.User == "system:kube-scheduler" && x.CauseUID == pod.UID && x.CauseRev >= created.Rev
		}) {
			t.Errorf("the writes to the Pod are %+v, want its binding among them, caused by the Pod itself", r)
		}
		if created.CauseUID != rs.UID {
			t.Errorf("the Pod was caused by %q, want the ReplicaSet %q", created.CauseUID, rs.UID)
		}
		created = creation(t, c, made.GetUID())
		if r := c.Server.HopsOf(made.GetUID()); !slices.ContainsFunc(r, func(x hop.Record) bool {
			return x.Verb == hop.Reconcile && x.User == "deployment-controller" && x.CauseRev == created.Rev && x.Name == "web"
		}) {
			t.Errorf("the records of the Deployment are %+v, want the reconcile that made the ReplicaSet among them", r)
		}
	})
}

// creation returns the record of the creation of an object. A write that was refused because the object had been changed may come before
// it: it has no revision.
func creation(t *testing.T, c *proatest.Cluster, uid types.UID) hop.Record {
	t.Helper()
	records := c.Server.HopsOf(uid)
	at := slices.IndexFunc(records, func(r hop.Record) bool { return r.Verb == "create" && r.Subresource == "" && r.Rev > 0 })
	if at < 0 {
		t.Fatalf("no record of the creation of %s: %v", uid, records)
	}
	return records[at]
}

func TestStart(t *testing.T) {
	for name, options := range map[string][]proatest.Option{
		"etcd": nil, "memory": {proatest.Memory()}, "alone": {proatest.Memory(), proatest.Alone()},
		"nodes": {proatest.Memory(), proatest.Simulate(5)},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			c := proatest.Start(t, options...)
			t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
			if _, err := c.Client.Get(t.Context(), gr.Services, "default", "kubernetes", ""); err != nil {
				t.Error(err)
			}
			c.Stop()
			c.Stop() // again does no harm
		})
	}
}
