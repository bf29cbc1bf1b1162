package customresourcedefinition

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/parallel"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// statusController returns the controller that writes accepted names and conditions of definitions. It has one worker: two
// that decide about one group at the same time could grant a name twice.
func statusController() control.Controller {
	return control.Controller{
		Name: "crd-status-controller", For: gr.CustomResourceDefinitions, Outlines: true,
		When:      func(_, _ kind.Object) bool { return false }, // groups are the keys, except after a gap
		Triggers:  []control.Trigger{{On: gr.CustomResourceDefinitions, When: concernsNames, Keys: groupOf}},
		Writes:    []control.Write{{On: gr.CustomResourceDefinitions, Do: "update/status"}},
		Reconcile: reconcileGroup,
	}
}

// concernsNames ignores changes of a definition after which the status of its group stays the same. That includes the status
// that the controller itself writes, unless it gives up a name that other definitions may wait for.
func concernsNames(old, now kind.Object) bool {
	a, ok := old.(*crd)
	b, also := now.(*crd)
	if !ok || !also || a.UID != b.UID {
		return true
	}
	const approved = apiextensionsv1.KubeAPIApprovedAnnotation
	if a.Generation != b.Generation || a.Annotations[approved] != b.Annotations[approved] {
		return true
	}
	renamed := !sameNames(&a.Status.AcceptedNames, &b.Status.AcceptedNames)
	return renamed && a.Status.AcceptedNames.Plural != "" ||
		!isSettled(b) && (renamed || !sameConditions(a.Status.Conditions, b.Status.Conditions))
}

// groupOf yields the key of a definition's group. The group is the namespace of the key, so that it cannot be confused with
// the name of a definition.
func groupOf(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if c, ok := o.(*crd); ok {
			yield(control.Key{Namespace: c.Spec.Group})
		}
	}
}

// byGroup indexes definitions by the group of their resource.
func byGroup() client.Index {
	return client.Index{Name: "group", Values: func(o kind.Object) []string {
		if c, ok := o.(*crd); ok {
			return []string{c.Spec.Group}
		}
		return nil
	}}
}

// reconcileGroup updates the status of all definitions of a group.
func reconcileGroup(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	group := k.Namespace
	if group == "" { // a definition, after a gap; it is called PLURAL.GROUP
		_, group, _ = strings.Cut(k.Name, ".")
	}
	var known []*crd // complete objects where the status may change, outlines otherwise
	for d := range control.By[*crd](c, gr.CustomResourceDefinitions, byGroup(), group) {
		if !isSettled(d) {
			var found bool
			if d, found = control.Whole[*crd](c, gr.CustomResourceDefinitions, "", d.Name); !found {
				continue
			}
		}
		known = append(known, d)
	}
	changed := decide(known, metav1.Now())
	return 0, errors.Join(parallel.ForEach(len(changed), writers, func(i int) error {
		_, err := c.Update(ctx, gr.CustomResourceDefinitions, changed[i], "status")
		return control.IgnoreNotFound(err)
	})...)
}

// writers bounds the definitions that are written concurrently. The store takes several concurrent writes about as fast as one.
const writers = 16
