package proatest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// The Deployment and the policies of TestPolicies. The mutating policy has a condition so that it adds its container only once.
const (
	webDeployment = `
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: nginx, image: "nginx:1.27", ports: [{containerPort: 80}]}]
`
	fewReplicas = `
metadata: {name: few-replicas}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  validations: [{expression: object.spec.replicas <= 3, messageExpression: "string(object.spec.replicas) + ' replicas are too many'"}]
`
	addSidecar = `
metadata: {name: add-sidecar}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: has-none, expression: "!object.spec.containers.exists(c, c.name == 'proxy')"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'proxy', image: 'envoy'}]}}"}
`
)

func registration(resource string) schema.GroupResource {
	return schema.GroupResource{Group: admissionv1.GroupName, Resource: resource}
}

// create stores an object that is written in YAML.
func create(t *testing.T, c *proatest.Cluster, on schema.GroupResource, obj kind.Object, text string) error {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	_, err := c.Client.Create(t.Context(), on, obj)
	return err
}

// TestPolicies runs a Deployment under a policy that rejects more than three replicas, and one that adds a container to every Pod.
func TestPolicies(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.Simulate(1), proatest.InDir(dir))
		defer c.Stop()
		for _, err := range []error{
			create(t, c, gr.ValidatingAdmissionPolicies, &admissionv1.ValidatingAdmissionPolicy{}, fewReplicas),
			create(t, c, registration("validatingadmissionpolicybindings"), &admissionv1.ValidatingAdmissionPolicyBinding{},
				"metadata: {name: everywhere}\nspec: {policyName: few-replicas, validationActions: [Deny]}"),
			create(t, c, registration("mutatingadmissionpolicies"), &admissionv1.MutatingAdmissionPolicy{}, addSidecar),
			create(t, c, registration("mutatingadmissionpolicybindings"), &admissionv1.MutatingAdmissionPolicyBinding{},
				"metadata: {name: everywhere}\nspec: {policyName: add-sidecar, matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}}"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // for the cache
		synctest.Wait()
		err := create(t, c, gr.Deployments, &appsv1.Deployment{}, strings.Replace(webDeployment, "replicas: 3", "replicas: 4", 1))
		want := `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'few-replicas' with binding 'everywhere' denied request: 4 replicas are too many`
		if err == nil || err.Error() != want || apierrors.ReasonForError(err) != metav1.StatusReasonInvalid {
			t.Errorf("four replicas: %v\nwant %s", err, want)
		}
		if err := create(t, c, gr.Deployments, &appsv1.Deployment{}, webDeployment); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		pods := 0
		for o := range open(t, c, "pods").List("default") {
			pods++
			var names []string
			for _, one := range o.(*corev1.Pod).Spec.Containers {
				names = append(names, one.Name+" "+string(one.ImagePullPolicy))
			}
			if want := []string{"nginx IfNotPresent", "proxy Always"}; !slices.Equal(names, want) {
				t.Errorf("a Pod has the containers %q, want %q", names, want)
			}
		}
		if pods != 3 {
			t.Errorf("%d Pods, want 3", pods)
		}
		// A policy that has changed, and one that was deleted.
		policy, err := c.Client.Get(t.Context(), gr.ValidatingAdmissionPolicies, "", "few-replicas", "")
		if err != nil {
			t.Fatal(err)
		}
		policy.(*admissionv1.ValidatingAdmissionPolicy).Spec.Validations[0].Expression = "object.spec.replicas <= 1"
		if _, err := c.Client.Update(t.Context(), gr.ValidatingAdmissionPolicies, policy, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other := strings.ReplaceAll(webDeployment, "name: web", "name: other")
		if err := create(t, c, gr.Deployments, &appsv1.Deployment{}, other); !apierrors.IsInvalid(err) {
			t.Errorf("three replicas after the policy has changed: %v", err)
		}
		if err := c.Client.Delete(t.Context(), registration("validatingadmissionpolicybindings"), "", "everywhere",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := create(t, c, gr.Deployments, &appsv1.Deployment{}, other); err != nil {
			t.Errorf("three replicas without a binding: %v", err)
		}
	})
}

// TestDeletePolicyAllowsEviction checks that a policy that rejects the deletion of Pods does not reject their eviction, which is
// another operation.
func TestDeletePolicyAllowsEviction(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		defer c.Stop()
		for _, err := range []error{
			create(t, c, gr.ServiceAccounts, &corev1.ServiceAccount{}, "metadata: {name: plain, namespace: default}"),
			create(t, c, gr.Pods, &corev1.Pod{}, "metadata: {name: a, namespace: default}\nspec: {serviceAccountName: plain, containers: [{name: c, image: i}]}"),
			create(t, c, gr.ValidatingAdmissionPolicies, &admissionv1.ValidatingAdmissionPolicy{}, `
metadata: {name: keep}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}]}
  validations: [{expression: 'false', message: stays, reason: Forbidden}]
`),
			create(t, c, registration("validatingadmissionpolicybindings"), &admissionv1.ValidatingAdmissionPolicyBinding{},
				"metadata: {name: keep}\nspec: {policyName: keep, validationActions: [Deny]}"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // for the cache
		synctest.Wait()
		if err := c.Client.Delete(t.Context(), gr.Pods, "default", "a", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the deletion: got %v", err)
		}
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		if _, err := c.Client.Act(t.Context(), gr.Pods, "default", "a", "eviction", eviction); err != nil {
			t.Errorf("the eviction: %v", err)
		}
	})
}
