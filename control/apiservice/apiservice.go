// Package apiservice keeps the APIServices of the group versions that this server serves itself. It creates one for each
// group version of custom resources and deletes it with the last definition of that version, and restores those of built-in
// groups that were deleted. An APIService without the label of automatically managed ones is an administrator's, and is left
// alone.
package apiservice

import (
	"context"
	"iter"
	"reflect"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/apiregistration"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller. builtIn returns the APIServices of the built-in groups.
func Controller(builtIn func() []*apiregistrationv1.APIService) control.Controller {
	byName := client.Index{Name: "apiservice", Values: func(o kind.Object) (names []string) {
		if d, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
			for _, v := range d.Spec.Versions {
				if v.Served {
					names = append(names, v.Name+"."+d.Spec.Group)
				}
			}
		}
		return names
	}}
	return control.Controller{
		Name: "autoregister", For: gr.APIServices, Outlines: true,
		Writes: []control.Write{{On: gr.APIServices, Do: "create update delete"}},
		Triggers: []control.Trigger{{On: gr.CustomResourceDefinitions, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				for _, v := range o.(*apiextensionsv1.CustomResourceDefinition).Spec.Versions {
					if !yield(control.Key{Name: v.Name + "." + o.(*apiextensionsv1.CustomResourceDefinition).Spec.Group}) {
						return
					}
				}
			}
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, _ := control.Get[*apiregistrationv1.APIService](c, gr.APIServices, "", k.Name)
			want := wanted(c, k.Name, byName, builtIn())
			if decide(have, want) == remove { // the view may not show a new definition yet
				if err := c.View(gr.CustomResourceDefinitions).Reach(ctx, 0); err != nil {
					return 0, err
				}
				want = wanted(c, k.Name, byName, nil)
			}
			return 0, apply(ctx, c, have, want)
		},
	}
}

// wanted returns the APIService of a name as it shall be; nil if there shall be none.
func wanted(c *control.Cluster, name string, byName client.Index, builtIn []*apiregistrationv1.APIService) *apiregistrationv1.APIService {
	for _, s := range builtIn {
		if s.Name == name {
			return s
		}
	}
	for range c.View(gr.CustomResourceDefinitions).By(byName, name) {
		version, group, _ := strings.Cut(name, ".")
		return apiregistration.Custom(schema.GroupVersion{Group: group, Version: version})
	}
	return nil
}

// apply creates, updates or deletes an APIService. have and want may be nil.
func apply(ctx context.Context, c *control.Cluster, have, want *apiregistrationv1.APIService) error {
	switch decide(have, want) {
	case create:
		_, err := c.Create(ctx, gr.APIServices, want)
		return control.IgnoreObsolete(err)
	case update:
		next := have.DeepCopy()
		next.Spec = want.Spec
		_, err := c.Update(ctx, gr.APIServices, next, "")
		return control.IgnoreNotFound(err)
	case remove:
		return control.IgnoreNotFound(c.Delete(ctx, gr.APIServices, "", have.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion},
		}))
	}
	return nil
}

// action is what to do with an APIService.
type action int

const (
	nothing action = iota
	create
	update
	remove
)

// decide compares an APIService with the wanted one. Changes of the automatically managed ones, which are those of custom
// resources, are reverted. Those of built-in groups are only created when they are missing, so that an administrator can
// change one and have another server serve the group.
func decide(have, want *apiregistrationv1.APIService) action {
	switch {
	case have == nil && want == nil:
		return nothing
	case have == nil:
		return create
	case have.Labels[apiregistration.AutomanagedLabel] != apiregistration.Automanaged:
		return nothing
	case want == nil:
		return remove
	case !reflect.DeepEqual(have.Spec, want.Spec):
		return update
	}
	return nothing
}
