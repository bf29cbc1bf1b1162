package definition

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// statusController returns the loop that gives definitions their names and conditions. There is one worker: two that decide about
// one group at a time could give a name away twice.
func statusController() control.Controller {
	return control.Controller{
		Name: "crd-status-controller", For: gr.CustomResourceDefinitions, Outlines: true,
		When:      func(_, _ kind.Object) bool { return false }, // groups are the keys, except after a gap
		Triggers:  []control.Trigger{{On: gr.CustomResourceDefinitions, When: concernsNames, Keys: groupOf}},
		Writes:    []control.Write{{On: gr.CustomResourceDefinitions, Do: "update/status"}},
		Reconcile: reconcileGroup,
	}
}

// concernsNames leaves out the changes of a definition after which its group has the same status as before. The status that
// the loop itself writes is among them, unless it gives up a name that others may wait for.
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
		!settled(b) && (renamed || !sameConditions(a.Status.Conditions, b.Status.Conditions))
}

// groupOf wakes the key of a definition's group. A group stands in the place of a namespace, so that it is never taken for the
// name of a definition.
func groupOf(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if c, ok := o.(*crd); ok {
			yield(control.Key{Namespace: c.Spec.Group})
		}
	}
}

// byGroup finds definitions by the group of their resource.
func byGroup() client.Index {
	return client.Index{Name: "group", Of: func(o kind.Object) []string {
		if c, ok := o.(*crd); ok {
			return []string{c.Spec.Group}
		}
		return nil
	}}
}

// reconcileGroup brings the status of all definitions of a group up to date.
func reconcileGroup(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	group := k.Namespace
	if group == "" { // a definition, after a gap; it is called PLURAL.GROUP
		_, group, _ = strings.Cut(k.Name, ".")
	}
	var known []*crd // whole, where more than names matters
	for d := range control.By[*crd](c, gr.CustomResourceDefinitions, byGroup(), group) {
		if !settled(d) {
			var found bool
			if d, found = control.Whole[*crd](c, gr.CustomResourceDefinitions, "", d.Name); !found {
				continue
			}
		}
		known = append(known, d)
	}
	return 0, writeAll(decide(known, metav1.Now()), func(d *crd) error {
		_, err := c.Update(ctx, gr.CustomResourceDefinitions, d, "status")
		return control.Gone(err)
	})
}

// writers is how many definitions are written at a time. A store takes many writes at once about as fast as one.
const writers = 16

// writeAll writes definitions, some at a time.
func writeAll(list []*crd, write func(*crd) error) error {
	errs := make([]error, len(list))
	seats := make(chan struct{}, writers)
	var wg sync.WaitGroup
	for i, d := range list {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			errs[i] = write(d)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
