package controllers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run/storeencryption"
)

// await waits until an object satisfies a condition; the object is nil if it does not exist.
func await(t *testing.T, c client.Client, on schema.GroupResource, namespace, name string, fits func(o kind.Object) bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	v, err := c.View(ctx, on)
	if err != nil {
		t.Fatal(err)
	}
	holds := func() bool {
		o, found := v.Get(namespace, name)
		if !found {
			o = nil
		}
		return fits(o)
	}
	for range v.Events(ctx) {
		if holds() {
			return
		}
	}
	o, _ := v.Get(namespace, name)
	t.Fatalf("%s %s/%s stays as it is: %+v", on, namespace, name, o)
}

// TestControllersWithUndecryptableSecret checks that controllers work in a cluster with a Secret that cannot be decrypted: garbage
// collection and quotas work, the namespace of the Secret is not removed and has a condition with the reason, and a migration does
// not succeed.
func TestControllersWithUndecryptableSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := proatest.Start(t, proatest.Alone(), proatest.InDir(dir))
	create := func(c client.Client, on schema.GroupResource, o kind.Object) kind.Object {
		t.Helper()
		out, err := c.Create(t.Context(), on, o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	create(first.Client, gr.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	create(first.Client, gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "lost"}})
	first.Stop()
	if err := os.Remove(filepath.Join(dir, "pki", "secrets.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := storeencryption.NewKeyFile(dir); err != nil {
		t.Fatal(err)
	}
	c := proatest.Start(t, proatest.Alone(), proatest.InDir(dir)).Client
	const key = "/registry/secrets/x/lost"
	if _, err := c.Get(t.Context(), gr.Secrets, "x", "lost", ""); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), key) {
		t.Errorf("the Secret is %v", err)
	}
	// Garbage collection.
	owner := create(c, gr.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}})
	create(c, gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owned",
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID()},
		}}})
	if err := c.Delete(t.Context(), gr.ConfigMaps, "default", "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, gr.Secrets, "default", "owned", func(o kind.Object) bool { return o == nil })
	// Quota.
	create(c, gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "counted"}})
	create(c, gr.ResourceQuotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("5")}},
	})
	await(t, c, gr.ResourceQuotas, "default", "q", func(o kind.Object) bool {
		return o != nil && o.(*corev1.ResourceQuota).Status.Used.Name("secrets", resource.DecimalSI).Value() == 1
	})
	// Migration.
	m := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	m.Spec.Resource = metav1.GroupResource{Resource: "secrets"}
	create(c, gr.StorageVersionMigrations, m)
	await(t, c, gr.StorageVersionMigrations, "", "m", func(o kind.Object) bool {
		for _, c := range o.(*storagemigrationv1.StorageVersionMigration).Status.Conditions {
			if c.Type == string(storagemigrationv1.MigrationFailed) {
				return strings.Contains(c.Message, key)
			}
		}
		return false
	})
	// Namespace.
	create(c, gr.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "other"}})
	if err := c.Delete(t.Context(), gr.Namespaces, "", "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, gr.Namespaces, "", "x", func(o kind.Object) bool {
		if o == nil {
			t.Fatal("the namespace is gone, with a Secret in it")
		}
		for _, c := range o.(*corev1.Namespace).Status.Conditions {
			if c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue {
				return strings.Contains(c.Message, key)
			}
		}
		return false
	})
	await(t, c, gr.ConfigMaps, "x", "other", func(o kind.Object) bool { return o == nil })
	if err := c.Delete(t.Context(), gr.Secrets, "x", "lost",
		metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}); err != nil {
		t.Fatal(err)
	}
	await(t, c, gr.Namespaces, "", "x", func(o kind.Object) bool { return o == nil })
}
