// Package flowconfig keeps the FlowSchemas and PriorityLevelConfigurations that every cluster has. Changes of the mandatory
// ones are reverted. The suggested ones are kept up to date until somebody changes them, or turns that off by an annotation.
// Those that only an older version of the system suggested are deleted.
package flowconfig

import (
	"context"
	"iter"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/flowcontrol"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controllers returns the controllers, one for each kind.
func Controllers() []control.Controller {
	schemas := &keeper{on: gr.FlowSchemas, wanted: map[string]wanted{}}
	schemas.want(flowcontrol.FlowSchemas(), objects(flowcontrol.Schemas()), len(flowcontrol.MandatorySchemas()))
	levels := &keeper{on: gr.PriorityLevelConfigurations, wanted: map[string]wanted{}}
	levels.want(flowcontrol.PriorityLevelConfigurations(), objects(flowcontrol.Levels()), len(flowcontrol.MandatoryLevels()))
	return []control.Controller{levels.controller("priority-level-config-producer"), schemas.controller("flow-schema-config-producer")}
}

func objects[T kind.Object](list []T) (out []kind.Object) {
	for _, o := range list {
		out = append(out, o)
	}
	return out
}

// wanted is a suggested or mandatory object.
type wanted struct {
	kind.Object
	mandatory bool
}

// keeper keeps the objects of one kind.
type keeper struct {
	on     schema.GroupResource
	wanted map[string]wanted
}

// want adds objects, of which the first ones are mandatory.
func (k *keeper) want(def *kind.Def, list []kind.Object, mandatory int) {
	for i, o := range list {
		def.Default(o)
		k.wanted[o.GetName()] = wanted{o, i < mandatory}
	}
}

func (k *keeper) controller(name string) control.Controller {
	return control.Controller{
		Name: name, For: k.on, Writes: []control.Write{{On: k.on, Do: "create update delete"}},
		// This namespace always exists, and its first event creates the missing objects.
		Triggers: []control.Trigger{{On: gr.Namespaces, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				if o.GetName() != metav1.NamespaceSystem {
					return
				}
				for name := range k.wanted {
					if !yield(control.Key{Name: name}) {
						return
					}
				}
			}
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, key control.Key) (time.Duration, error) {
			return 0, k.reconcile(ctx, c, key.Name)
		},
	}
}

func (k *keeper) reconcile(ctx context.Context, c *control.Cluster, name string) error {
	have, found := c.View(k.on).Get("", name)
	want, known := k.wanted[name]
	var err error
	switch {
	case !found && known:
		_, err = c.Create(ctx, k.on, want.DeepCopyObject().(kind.Object))
	case found && !known && isOutdated(have):
		err = c.Delete(ctx, k.on, "", name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(have.GetUID()),
				ResourceVersion: new(have.GetResourceVersion())}})
	case found && known:
		if next := updated(have, want); next != nil {
			_, err = c.Update(ctx, k.on, next, "")
		}
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// autoUpdate is the annotation for whether the system keeps an object up to date.
const autoUpdate = flowcontrolv1.AutoUpdateAnnotationKey
