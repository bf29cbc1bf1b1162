package lookup

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
)

// Discoverer is a Cluster that can tell which resources it serves. Nearly every user may ask for that, and few may read
// CustomResourceDefinitions.
type Discoverer interface {
	// Discover returns the resources, among them at least all custom ones.
	Discover(ctx context.Context) ([]metav1.APIResource, error)
}

// Definition is the part of a CustomResourceDefinition that explanations read.
type Definition struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
	} `json:"spec"`
	Status struct {
		Conditions []Condition `json:"conditions"`
	} `json:"status"`
}

// Established returns the resources of the definitions that are served, as discovery describes them.
func Established(definitions []Definition) (out []metav1.APIResource) {
	for i := range definitions {
		if d := &definitions[i]; IsTrue(d.Status.Conditions, "Established") {
			out = append(out, metav1.APIResource{
				Group: d.Spec.Group, Name: d.Spec.Names.Plural, Kind: d.Spec.Names.Kind, Namespaced: d.Spec.Scope == "Namespaced",
				Verbs: metav1.Verbs{"get", "list"},
			})
		}
	}
	return out
}

// builtInGroups are the groups with a dot in their name that are no custom resources: those of Kubernetes, of metrics, and of traces. The
// groups of custom resources have a dot too.
const builtInGroups = " admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io authentication.k8s.io " +
	"authorization.k8s.io certificates.k8s.io coordination.k8s.io custom.metrics.k8s.io discovery.k8s.io events.k8s.io external.metrics.k8s.io " +
	"flowcontrol.apiserver.k8s.io internal.apiserver.k8s.io metrics.k8s.io networking.k8s.io node.k8s.io rbac.authorization.k8s.io " +
	"resource.k8s.io scheduling.k8s.io storage.k8s.io storagemigration.k8s.io trace.proa.dev "

// CustomResources returns the custom resources of the cluster that can be listed, by name. For a user who may not read the definitions of
// them these are the resources that discovery tells of and that are not built in.
func (r *Reader) CustomResources(ctx context.Context) []metav1.APIResource {
	definitions, err := TryList[Definition](ctx, r, gr.CustomResourceDefinitions, "", "")
	out := Established(definitions)
	if d, ok := r.cluster.(Discoverer); ok && apierrors.IsForbidden(err) {
		if found, discoverErr := d.Discover(ctx); discoverErr == nil {
			out, err = slices.Clone(found), nil
		}
	}
	r.CannotSee(gr.CustomResourceDefinitions.String()+" of all namespaces", err)
	out = slices.DeleteFunc(out, func(x metav1.APIResource) bool {
		return !strings.Contains(x.Group, ".") || strings.Contains(builtInGroups, " "+x.Group+" ") || !slices.Contains(x.Verbs, "list")
	})
	slices.SortFunc(out, func(a, b metav1.APIResource) int { return strings.Compare(a.Name+"."+a.Group, b.Name+"."+b.Group) })
	return out
}
