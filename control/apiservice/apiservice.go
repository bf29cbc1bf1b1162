// Package apiservice keeps the APIServices of the group versions that this server serves itself: it makes one for each group version of custom
// resources and deletes it with the last definition that has the version, and makes those of built-in groups again when somebody has deleted
// them. An APIService that an administrator has made, without the label of the automatic ones, is left alone.
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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Controller returns the loop. builtIn are the APIServices of the built-in groups.
func Controller(builtIn func() []*apiregistrationv1.APIService) control.Controller {
	byName := client.Index{Name: "apiservice", Of: func(o kind.Object) (names []string) {
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
		Name: "autoregister", For: gr.APIServices, Outlines: true, Writes: []control.Write{{On: gr.APIServices, Do: "create update delete"}},
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
			if decide(have, want) == remove { // a definition may be too new for the view
				if err := c.View(gr.CustomResourceDefinitions).Reach(ctx, 0); err != nil {
					return 0, err
				}
				want = wanted(c, k.Name, byName, nil)
			}
			return 0, act(ctx, c, have, want)
		},
	}
}

// wanted is the APIService of a name that there must be; nil for none.
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

// act brings an APIService closer to what is wanted. Both may be nil.
func act(ctx context.Context, c *control.Cluster, have, want *apiregistrationv1.APIService) error {
	switch decide(have, want) {
	case create:
		_, err := c.Create(ctx, gr.APIServices, want)
		return control.Settled(err)
	case update:
		next := have.DeepCopy()
		next.Spec = want.Spec
		_, err := c.Update(ctx, gr.APIServices, next, "")
		return control.Gone(err)
	case remove:
		return control.Gone(c.Delete(ctx, gr.APIServices, "", have.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion},
		}))
	}
	return nil
}

// action is what is to be done with an APIService.
type action int

const (
	nothing action = iota
	create
	update
	remove
)

// decide compares what there is with what is wanted. Those of custom resources are kept as they must be; those of built-in groups are made when
// they are missing, and may be changed, so that another server serves the group.
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
