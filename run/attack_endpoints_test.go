package run_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestForeignEndpointsAreRejected runs the attacks of CVE-2021-25737 and CVE-2021-25740 against a server with default settings: a
// user who may write endpoints in one namespace writes EndpointSlices and Endpoints with loopback and link-local addresses and
// that of a Pod of another namespace, and labels a slice as one of the controller.
func TestForeignEndpointsAreRejected(t *testing.T) {
	cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), func(c *run.Config) {
		c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
	})
	create := func(on schema.GroupResource, o kind.Object) {
		t.Helper()
		if _, err := cluster.Client.Create(t.Context(), on, o); err != nil {
			t.Fatal(err)
		}
	}
	rbac := func(resource string) schema.GroupResource {
		return schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
	}
	for namespace, ip := range map[string]string{"shop": "10.244.0.8", "bank": "10.244.0.7"} {
		create(gr.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		create(schema.GroupResource{Resource: "serviceaccounts"},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		create(gr.Pods, pod)
		o, err := cluster.Client.Get(t.Context(), gr.Pods, namespace, "p", "")
		if err != nil {
			t.Fatal(err)
		}
		pod = o.(*corev1.Pod).DeepCopy()
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
		if _, err := cluster.Client.Update(t.Context(), gr.Pods, pod, "status"); err != nil {
			t.Fatal(err)
		}
	}
	create(rbac("roles"), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "writer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", discoveryv1.GroupName}, Resources: []string{"endpoints", "endpointslices"},
			Verbs: []string{"create", "update"}},
	}})
	create(rbac("rolebindings"), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "writer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}}})
	mallory := cluster.Server.Client(&user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}})

	answer := func(err error) string {
		switch {
		case err == nil:
			return "created"
		case apierrors.IsInvalid(err):
			return "invalid"
		case apierrors.IsForbidden(err):
			return "forbidden"
		}
		return err.Error()
	}
	slice := func(ip string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "x-"},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip}}}}
	}
	for i, c := range []struct{ ip, want string }{
		{"127.0.0.1", "invalid"}, {"169.254.169.254", "invalid"}, {"0.0.0.0", "invalid"}, {"224.0.0.1", "invalid"},
		{"10.244.0.7", "forbidden"}, {"10.244.0.8", "created"}, {"203.0.113.9", "created"},
	} {
		_, err := mallory.Create(t.Context(), gr.EndpointSlices, slice(c.ip))
		if got := answer(err); got != c.want {
			t.Errorf("a slice with %s: %s, want %s (%v)", c.ip, got, c.want, err)
		}
		endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("x%d", i)},
			Subsets: []corev1.EndpointSubset{{
				Addresses: []corev1.EndpointAddress{{IP: c.ip}}, Ports: []corev1.EndpointPort{{Port: 80}},
			}}}
		_, err = mallory.Create(t.Context(), gr.Endpoints, endpoints)
		if got := answer(err); got != c.want {
			t.Errorf("Endpoints with %s: %s, want %s (%v)", c.ip, got, c.want, err)
		}
	}
	forged := slice("10.244.0.8")
	forged.Labels = map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	if _, err := mallory.Create(t.Context(), gr.EndpointSlices, forged); !apierrors.IsForbidden(err) {
		t.Errorf("a slice of the controller: %v", err)
	}
	if _, err := cluster.Client.Create(t.Context(), gr.EndpointSlices, slice("10.244.0.7")); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}
