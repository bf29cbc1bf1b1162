package lookup

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
)

// Resource is a resource that a cluster serves, as discovery describes it.
type Resource struct {
	schema.GroupResource
	Kind       string
	Namespaced bool
}

// Discoverer is a Cluster that can tell which resources it serves. Nearly every user may ask for that, and few may read
// CustomResourceDefinitions.
type Discoverer interface {
	// Discover returns the resources that can be listed, among them at least all custom ones.
	Discover(ctx context.Context) ([]Resource, error)
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

// Established returns the resources of the definitions that are served.
func Established(definitions []Definition) (out []Resource) {
	for i := range definitions {
		d := &definitions[i]
		if IsTrue(d.Status.Conditions, "Established") {
			on := schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
			out = append(out, Resource{GroupResource: on, Kind: d.Spec.Names.Kind, Namespaced: d.Spec.Scope == "Namespaced"})
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

// CustomResources returns the custom resources of the cluster, by name. For a user who may not read the definitions of them these are the
// resources that discovery tells of and that are not built in.
func (r *Reader) CustomResources(ctx context.Context) []Resource {
	definitions, err := TryList[Definition](ctx, r, gr.CustomResourceDefinitions, "", "")
	out := Established(definitions)
	if apierrors.IsForbidden(err) {
		found, discoverErr := r.discover(ctx)
		if discoverErr == nil {
			err = nil
		}
		out = slices.DeleteFunc(slices.Clone(found), func(x Resource) bool {
			return !strings.Contains(x.Group, ".") || strings.Contains(builtInGroups, " "+x.Group+" ")
		})
	}
	r.CannotSee(gr.CustomResourceDefinitions.String()+" of all namespaces", err)
	slices.SortFunc(out, func(a, b Resource) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// discover asks which resources the cluster serves.
func (r *Reader) discover(ctx context.Context) ([]Resource, error) {
	if d, ok := r.cluster.(Discoverer); ok {
		return d.Discover(ctx)
	}
	return nil, errors.ErrUnsupported
}
