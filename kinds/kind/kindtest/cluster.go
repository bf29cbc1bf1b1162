package kindtest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Cluster is a store in memory with what the transactions of kinds need: objects, claims and the changes of one transaction. Keys of
// objects are RESOURCE/NAMESPACE/NAME.
type Cluster struct {
	kind.Server // the methods that no test calls

	Objects map[string]kind.Object
	Claims  map[string]string // owners by key
	Dry     bool

	// Created, Deleted, Claimed and Released are what the transaction has recorded since Begin.
	Created  map[string]kind.Object
	Deleted  []string
	Claimed  map[string]string
	Released []string
}

// NewCluster returns a cluster whose Services get addresses from these ranges.
func NewCluster(serviceCIDRs ...string) *Cluster {
	c := &Cluster{Objects: map[string]kind.Object{}, Claims: map[string]string{}}
	c.Objects["servicecidrs//kubernetes"] = &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: serviceCIDRs},
	}
	c.Begin()
	return c
}

// Begin starts a new transaction.
func (c *Cluster) Begin() {
	c.Created, c.Claimed, c.Deleted, c.Released = map[string]kind.Object{}, map[string]string{}, nil, nil
}

// Get implements kind.Server.
func (c *Cluster) Get(_ context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	if o, ok := c.Objects[gr.Resource+"/"+namespace+"/"+name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(gr, name)
}

// List implements kind.Server. It lists all namespaces.
func (c *Cluster) List(_ context.Context, gr schema.GroupResource, _ string) (iter.Seq[kind.Object], error) {
	return func(yield func(kind.Object) bool) {
		for _, key := range slices.Sorted(maps.Keys(c.Objects)) {
			if strings.HasPrefix(key, gr.Resource+"/") && !yield(c.Objects[key]) {
				return
			}
		}
	}, nil
}

// Claim implements kind.Txn.
func (c *Cluster) Claim(key, owner string, _ error) { c.Claimed[key] = owner }

// Release implements kind.Txn.
func (c *Cluster) Release(key string) { c.Released = append(c.Released, key) }

// DryRun implements kind.Txn.
func (c *Cluster) DryRun() bool { return c.Dry }

// Create implements kind.Txn.
func (c *Cluster) Create(gr schema.GroupResource, o kind.Object, _ error) {
	c.Created[gr.Resource+"/"+o.GetNamespace()+"/"+o.GetName()] = o
}

// Delete implements kind.Txn.
func (c *Cluster) Delete(gr schema.GroupResource, namespace, name string) {
	c.Deleted = append(c.Deleted, gr.Resource+"/"+namespace+"/"+name)
}
