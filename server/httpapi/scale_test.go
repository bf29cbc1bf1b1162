package httpapi

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/server"
)

const scaledSpec = `"spec":{"serviceName":"x","selector":%s,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`

// apply applies a configuration to an object or a subresource of it.
func (r *rig) apply(gr runtimeschema.GroupResource, sub, manager, body string, force bool) (kind.Object, error) {
	r.Helper()
	res, err := r.request("patch", gr.String(), "ns", "x", func(q *server.Request) {
		if sub != "" {
			q.Sub = q.Def.Sub(sub)
		}
		q.Patch, q.Options.Manager, q.Options.Force, q.Body = types.ApplyPatchType, manager, force, []byte(body)
	})
	if err != nil {
		return nil, err
	}
	return res.Object.(kind.Object), nil
}

// owners returns the field managers that own the replicas of an object.
func owners(o kind.Object) string {
	var out []string
	for _, e := range o.GetManagedFields() {
		if strings.Contains(e.FieldsV1.GetRawString(), `"f:replicas"`) {
			out = append(out, fmt.Sprintf("%s %s %s", e.Manager, e.Operation, e.Subresource))
		}
	}
	return strings.Join(out, ", ")
}

// TestApplyToUnownedScale checks that replicas without an owner belong to "before-first-apply". Applying another number to
// the scale is a conflict, the same number makes the manager a further owner, and force makes it the only one.
func TestApplyToUnownedScale(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ group, version, resource, kind, selector string }{
		{"", "v1", "replicationcontrollers", "ReplicationController", `{"a":"b"}`},
		{"apps", "apps/v1", "replicasets", "ReplicaSet", `{"matchLabels":{"a":"b"}}`},
		{"apps", "apps/v1", "deployments", "Deployment", `{"matchLabels":{"a":"b"}}`},
		{"apps", "apps/v1", "statefulsets", "StatefulSet", `{"matchLabels":{"a":"b"}}`},
	} {
		t.Run(c.resource, func(t *testing.T) {
			gr := runtimeschema.GroupResource{Group: c.group, Resource: c.resource}
			spec := fmt.Sprintf(scaledSpec, c.selector)
			if c.resource != "statefulsets" {
				spec = strings.Replace(spec, `"serviceName":"x",`, "", 1)
			}
			base := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x"},`, c.version, c.kind)
			if _, err := r.apply(gr, "", "author", base+spec+"}", false); err != nil {
				t.Fatal(err)
			}
			scale := func(replicas int, manager string, force bool) error {
				_, err := r.apply(gr, "scale", manager, fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":%d}}`, replicas), force)
				return err
			}
			expect := func(replicas int, by string) {
				t.Helper()
				o, err := r.State.Get(t.Context(), gr, "ns", "x")
				if err != nil {
					t.Fatal(err)
				}
				view, err := r.State.Def(gr).Sub("scale").View(o)
				if err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprintf("%+v", view); !strings.Contains(got, fmt.Sprintf("Spec:ScaleSpec{Replicas:%d,}", replicas)) ||
					owners(o) != by {
					t.Errorf("got %s\nowned by %q, want %d owned by %q", got, owners(o), replicas, by)
				}
			}
			expect(1, "")
			conflict := scale(3, "scaler", false)
			const want = `Apply failed with 1 conflict: conflict with "before-first-apply" with subresource "scale" using autoscaling/v1: .spec.replicas`
			if !apierrors.IsConflict(conflict) || conflict.Error() != want {
				t.Errorf("got %v\nwant %s", conflict, want)
			}
			expect(1, "")
			if err := scale(1, "scaler", false); err != nil {
				t.Error(err)
			}
			expect(1, "scaler Apply scale, before-first-apply Update scale")
			if err := scale(4, "scaler", true); err != nil {
				t.Error(err)
			}
			expect(4, "scaler Apply scale")
			if err := scale(5, "other", false); err == nil ||
				!strings.Contains(err.Error(), `conflict with "scaler" with subresource "scale": .spec.replicas`) {
				t.Errorf("what another one owns: %v", err)
			}
			if err := scale(6, "scaler", false); err != nil {
				t.Error(err)
			}
			expect(6, "scaler Apply scale")
			if _, err := r.apply(gr, "", "author", base+strings.Replace(spec, `{"`, `{"replicas":7,"`, 1)+"}",
				false); !apierrors.IsConflict(err) {
				t.Errorf("the author applies what the scaler owns: %v", err)
			}
		})
	}
}

// TestApplyToUnownedObject checks that all fields of an object without managedFields, also its status, belong to
// "before-first-apply".
func TestApplyToUnownedObject(t *testing.T) {
	r := newRig(t)
	gr := runtimeschema.GroupResource{Resource: "replicationcontrollers"}
	base := `{"apiVersion":"v1","kind":"ReplicationController","metadata":{"name":"x"},`
	spec := fmt.Sprintf(strings.Replace(scaledSpec, `"serviceName":"x",`, `"replicas":2,`, 1), `{"a":"b"}`)
	o, err := r.apply(gr, "", "author", base+spec+"}", false)
	if err != nil {
		t.Fatal(err)
	}
	status := o.DeepCopyObject().(*corev1.ReplicationController)
	status.Status.Replicas = 2
	res, err := r.request("update", gr.String(), "ns", "x", func(q *server.Request) { q.Sub, q.Object = q.Def.Sub("status"), status })
	if err != nil {
		t.Fatal(err)
	}
	o = res.Object.DeepCopyObject().(kind.Object)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // one empty entry removes all managed fields
	if _, err := r.request("update", gr.String(), "ns", "x", func(q *server.Request) { q.Object = o }); err != nil {
		t.Fatal(err)
	}
	stored, err := r.State.Get(t.Context(), gr, "ns", "x")
	if err != nil || len(stored.GetManagedFields()) > 0 {
		t.Fatalf("there are owners: %+v, %v", stored.GetManagedFields(), err)
	}
	for sub, body := range map[string]string{
		"":       base + strings.Replace(spec, `"replicas":2`, `"replicas":3`, 1) + "}",
		"status": base + `"status":{"replicas":3}}`,
		"scale":  `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":3}}`,
	} {
		if _, err := r.apply(gr, sub, "new", body, false); !apierrors.IsConflict(err) ||
			!strings.Contains(err.Error(), `"before-first-apply"`) {
			t.Errorf("apply to %q: %v", sub, err)
		}
	}
}
