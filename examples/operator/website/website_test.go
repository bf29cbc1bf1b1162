package website

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "example.com/operator/website/api/v1"
	"example.com/operator/website/api/v1beta1"
)

func newWebsite(name string) *v1.Website {
	return &v1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.WebsiteSpec{Host: name + ".example.com"}}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in 30 seconds", what)
		}
	}
}

func TestWebhooksDefaultAndValidate(t *testing.T) {
	ctx, site := t.Context(), newWebsite("checked")
	if err := k8sClient.Create(ctx, site); err != nil {
		t.Fatal(err)
	}
	if site.Spec.Image != "nginx:stable" || site.Spec.Replicas == nil || *site.Spec.Replicas != 2 {
		t.Errorf("the spec is %+v, want its defaults", site.Spec)
	}
	without := newWebsite("refused")
	without.Spec.Image = "nginx"
	if err := k8sClient.Create(ctx, without); err == nil || !strings.Contains(err.Error(), `admission webhook "validate.website.example.com" denied the request: spec.image has no tag`) {
		t.Errorf("an image without a tag: %v, want it refused", err)
	}
	err := k8sClient.Patch(ctx, site, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"host": "other.example.com"}}`)))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.host cannot be changed") {
		t.Errorf("another host: %v, want it refused", err)
	}
}

// TestVersionsAreConverted creates a Website in the older version: the webhooks, which know only v1, see it in v1.
func TestVersionsAreConverted(t *testing.T) {
	ctx := t.Context()
	old := &v1beta1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}, Spec: v1beta1.WebsiteSpec{DNSName: "old.example.com"}}
	if err := k8sClient.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	if old.Spec.DNSName != "old.example.com" || old.Spec.Servers == nil || *old.Spec.Servers != 2 {
		t.Errorf("the spec in v1beta1 is %+v, want two servers by default", old.Spec)
	}
	var site v1.Website
	if err := k8sClient.Get(ctx, client.ObjectKeyFromObject(old), &site); err != nil || site.Spec.Host != "old.example.com" || *site.Spec.Replicas != 2 {
		t.Errorf("the spec in v1 is %+v (%v), want that of v1beta1", site.Spec, err)
	}
	err := k8sClient.Patch(ctx, old, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"image": "nginx"}}`)))
	if err == nil || !strings.Contains(err.Error(), "spec.image has no tag") {
		t.Errorf("an image without a tag in v1beta1: %v, want it refused", err)
	}
	var list v1beta1.WebsiteList
	if err := k8sClient.List(ctx, &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if item.Spec.DNSName != item.Name+".example.com" {
			t.Errorf("the list in v1beta1 has %s with %+v", item.Name, item.Spec)
		}
	}
}

// TestDeploymentLivesAsLongAsItsWebsite follows a Website from its creation until it and its Deployment are deleted.
func TestDeploymentLivesAsLongAsItsWebsite(t *testing.T) {
	ctx, site := t.Context(), newWebsite("shop")
	if err := k8sClient.Create(ctx, site); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(site)
	var d appsv1.Deployment
	eventually(t, "the Deployment is there", func() bool { return k8sClient.Get(ctx, key, &d) == nil })
	if *d.Spec.Replicas != 2 || d.Spec.Template.Spec.Containers[0].Image != "nginx:stable" || !metav1.IsControlledBy(&d, site) {
		t.Errorf("the Deployment is %+v, want that of the Website", d)
	}
	// With envtest the test would end here: it has neither a Deployment controller nor a garbage collector.
	eventually(t, "the ReplicaSet is there", func() bool {
		var sets appsv1.ReplicaSetList
		err := k8sClient.List(ctx, &sets, client.InNamespace("default"), client.MatchingLabels{"example.com/website": "shop"})
		return err == nil && len(sets.Items) == 1 && *sets.Items[0].Spec.Replicas == 2
	})
	if err := k8sClient.Patch(ctx, site, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"replicas": 5}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status says five", func() bool { return k8sClient.Get(ctx, key, site) == nil && site.Status.Deployed == 5 })

	dnsIsDown.Store(true)
	defer dnsIsDown.Store(false)
	if err := k8sClient.Delete(ctx, site); err != nil {
		t.Fatal(err)
	}
	if err := k8sClient.Get(ctx, key, site); err != nil || site.DeletionTimestamp.IsZero() || len(site.Finalizers) != 1 {
		t.Errorf("the Website has gone before its host name was withdrawn: %v, %+v", err, site.ObjectMeta)
	}
	dnsIsDown.Store(false)
	eventually(t, "the Website is gone", func() bool { return apierrors.IsNotFound(k8sClient.Get(ctx, key, site)) })
	eventually(t, "the Deployment is gone", func() bool { return apierrors.IsNotFound(k8sClient.Get(ctx, key, &d)) })
}

func TestManagerIsElected(t *testing.T) {
	var lease coordinationv1.Lease
	eventually(t, "somebody leads", func() bool {
		err := k8sClient.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "website.example.com"}, &lease)
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	})
}
