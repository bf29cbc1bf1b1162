package gatewayplan

import gw "sigs.k8s.io/gateway-api/apis/v1"

// reference is a reference of an object of the Gateway API to another object.
type reference struct {
	fromKind, fromNamespace string // of the Gateway API
	toGroup, toKind         string
	to                      key
}

// permits reports whether a reference may be followed: it stays in its namespace, or a ReferenceGrant in the target namespace allows it.
func permits(grants []*gw.ReferenceGrant, r reference) bool {
	if r.fromNamespace == r.to.Namespace {
		return true
	}
	for _, g := range grants {
		if g.Namespace == r.to.Namespace && g.DeletionTimestamp == nil && allowsFrom(&g.Spec, r) && allowsTo(&g.Spec, r) {
			return true
		}
	}
	return false
}

func allowsFrom(s *gw.ReferenceGrantSpec, r reference) bool {
	for _, f := range s.From {
		if f.Group == group && string(f.Kind) == r.fromKind && string(f.Namespace) == r.fromNamespace {
			return true
		}
	}
	return false
}

func allowsTo(s *gw.ReferenceGrantSpec, r reference) bool {
	for _, t := range s.To {
		if string(t.Group) == r.toGroup && string(t.Kind) == r.toKind && (t.Name == nil || *t.Name == "" || string(*t.Name) == r.to.Name) {
			return true
		}
	}
	return false
}
