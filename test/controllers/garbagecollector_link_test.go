package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// linkers let scripts declare owners without knowing UIDs: an annotation "owners" like "configmaps/a! other/secrets/b" becomes
// owner references, those with a ! blocking ones.
func linkers() (out []control.Controller) {
	kinds := map[string]metav1.TypeMeta{
		"configmaps":   {APIVersion: "v1", Kind: "ConfigMap"},
		"secrets":      {APIVersion: "v1", Kind: "Secret"},
		"clusterroles": {APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
	}
	resources := []schema.GroupResource{gr.ConfigMaps, gr.Secrets, gr.ClusterRoles}
	for _, on := range resources {
		out = append(out, control.Controller{
			Name: "linker-of-" + on.Resource, For: on,
			Writes: []control.Write{
				{On: gr.ConfigMaps, Do: "get update"}, {On: gr.Secrets, Do: "get update"}, {On: gr.ClusterRoles, Do: "get update escalate"},
			},
			Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
				o, found := c.View(on).Get(k.Namespace, k.Name)
				if !found || o.GetAnnotations()["owners"] == "" {
					return 0, nil
				}
				next := o.DeepCopyObject().(kind.Object)
				var refs []metav1.OwnerReference
				for text := range strings.FieldsSeq(o.GetAnnotations()["owners"]) {
					path, blocking := strings.CutSuffix(text, "!")
					parts := strings.Split(path, "/")
					namespace := k.Namespace
					if len(parts) == 3 {
						namespace, parts = parts[0], parts[1:]
					}
					at := slices.IndexFunc(resources, func(r schema.GroupResource) bool { return r.Resource == parts[0] })
					if resources[at] == gr.ClusterRoles {
						namespace = ""
					}
					owner, err := c.Get(ctx, resources[at], namespace, parts[1], "")
					if err != nil {
						return 0, err
					}
					meta := kinds[parts[0]]
					refs = append(refs, metav1.OwnerReference{APIVersion: meta.APIVersion, Kind: meta.Kind, Name: parts[1],
						UID: owner.GetUID(), BlockOwnerDeletion: &blocking})
				}
				next.SetOwnerReferences(refs)
				next.SetAnnotations(nil)
				_, err := c.Update(ctx, on, next, "")
				return 0, err
			},
		})
	}
	return out
}
