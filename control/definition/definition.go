// Package definition lets go of custom resource definitions that are being deleted. Their instances would have to go
// first; as long as custom resources are stored definitions only, there are none.
package definition

import (
	"context"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
)

// Controller returns the loop.
func Controller() control.Controller {
	definitions := schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}
	return control.Controller{
		Name: "crd-finalizer", For: definitions, Writes: []control.Write{{On: definitions, Do: "update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			o, found := c.View(definitions).Get("", k.Name)
			if !found || o.GetDeletionTimestamp() == nil || !slices.Contains(o.GetFinalizers(), apiextensionsv1.CustomResourceCleanupFinalizer) {
				return 0, nil
			}
			next := o.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
			next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == apiextensionsv1.CustomResourceCleanupFinalizer })
			_, err := c.Update(ctx, definitions, next, "status")
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return 0, err
		},
	}
}
