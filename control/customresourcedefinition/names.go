package customresourcedefinition

import (
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// names holds the names that the definitions of one group have. Resource names and kinds may be equal: "sheep" may be both.
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

// conflict is the reason and message of the condition NamesAccepted for a definition that does not get all names it asks for.
type conflict struct {
	reason string
	err    error
}

// grant returns the names that a definition gets: those it asks for, except that it keeps its previous name where another
// definition has the wanted one. Of several conflicts the last one is returned, as upstream does.
func (n *names) grant(wanted, had *apiextensionsv1.CustomResourceDefinitionNames) (now apiextensionsv1.CustomResourceDefinitionNames,
	c *conflict) {
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

// sameNames compares names; nil and empty lists are equal.
func sameNames(a, b *apiextensionsv1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}
