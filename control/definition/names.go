package definition

import (
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// names are those that the definitions of one group have, in two sorts that may overlap: "sheep" may name a resource and a kind.
type names struct{ resources, kinds map[string]bool }

// namesOf returns the names that definitions have been granted.
func namesOf(group []*crd) names {
	n := names{resources: make(map[string]bool, 3*len(group)), kinds: make(map[string]bool, 2*len(group))}
	for _, c := range group {
		n.add(&c.Status.AcceptedNames)
	}
	return n
}

func (n *names) add(granted *apiextensionsv1.CustomResourceDefinitionNames) {
	n.resources[granted.Plural], n.resources[granted.Singular] = true, true
	for _, s := range granted.ShortNames {
		n.resources[s] = true
	}
	n.kinds[granted.Kind], n.kinds[granted.ListKind] = true, true
}

// conflict is why a definition does not get all names it asks for: a reason and a message of the condition NamesAccepted.
type conflict struct {
	reason string
	err    error
}

// grant returns the names that a definition has from now on: those it asks for, except where another definition has the name already; there
// it keeps what it had. The last conflict is the one to tell, as in Kubernetes.
func (n *names) grant(wanted, had *apiextensionsv1.CustomResourceDefinitionNames) (now apiextensionsv1.CustomResourceDefinitionNames, c *conflict) {
	now = *had.DeepCopy()
	one := func(name, before string, used map[string]bool, to *string, reason string) {
		if name != before && used[name] {
			c = &conflict{reason, inUse(name)}
			return
		}
		*to = name
	}
	one(wanted.Plural, had.Plural, n.resources, &now.Plural, "PluralConflict")
	one(wanted.Singular, had.Singular, n.resources, &now.Singular, "SingularConflict")
	var errs []error
	for _, s := range wanted.ShortNames {
		if !slices.Contains(had.ShortNames, s) && n.resources[s] {
			errs = append(errs, inUse(s))
		}
	}
	if len(errs) > 0 {
		c = &conflict{"ShortNamesConflict", errors.New(utilerrors.NewAggregate(errs).Error())}
	} else {
		now.ShortNames = slices.Clone(wanted.ShortNames)
	}
	one(wanted.Kind, had.Kind, n.kinds, &now.Kind, "KindConflict")
	one(wanted.ListKind, had.ListKind, n.kinds, &now.ListKind, "ListKindConflict")
	now.Categories = slices.Clone(wanted.Categories)
	return now, c
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }

// sameNames compares names; no short names are as good as an empty list of them.
func sameNames(a, b *apiextensionsv1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}
