package gateway

import (
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// reference is one from an object to another.
type reference struct {
	fromKind, fromNamespace string // of the group of the standard
	toGroup, toKind         string
	to                      key
}

// permits says that a reference may be followed: it stays in its namespace, or a ReferenceGrant where it leads to lets it in.
func permits(grants []*gw.ReferenceGrant, r reference) bool {
	if r.fromNamespace == r.to.namespace {
		return true
	}
	for _, g := range grants {
		if g.Namespace == r.to.namespace && g.DeletionTimestamp == nil && letsIn(&g.Spec, r) && letsTo(&g.Spec, r) {
			return true
		}
	}
	return false
}

func letsIn(s *gw.ReferenceGrantSpec, r reference) bool {
	for _, f := range s.From {
		if f.Group == group && string(f.Kind) == r.fromKind && string(f.Namespace) == r.fromNamespace {
			return true
		}
	}
	return false
}

func letsTo(s *gw.ReferenceGrantSpec, r reference) bool {
	for _, t := range s.To {
		if string(t.Group) == r.toGroup && string(t.Kind) == r.toKind && (t.Name == nil || *t.Name == "" || string(*t.Name) == r.to.name) {
			return true
		}
	}
	return false
}
