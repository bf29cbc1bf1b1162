package server

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/state"
)

// updateShare is the part of the bound of a namespace by which updates may exceed it: what is there already still gets its status.
const updateShare = 4

// reserveNamespaceBytes refuses a write that makes what its namespace has in the store exceed the bound, and otherwise returns the bytes
// that it has reserved until the write is made. What was written a moment ago, and no cache shows yet, does not count. Deletions are
// not bounded, nor are the namespaces of the system and the objects of the cluster, but for what nodes create there.
func (s *Server) reserveNamespaceBytes(who user.Info, def *kind.Def, obj, old kind.Object, w *kv.Write) (reserved int64, err error) {
	bound, what, namespace := s.NamespaceBytes, "namespace", state.Accounted(def, obj.GetNamespace())
	if bound <= 0 || w.UseReserve {
		return 0, nil
	}
	if def.Scope != kind.Namespaced {
		what = "resource"
	}
	createdByNode := old == nil && who != nil && slices.Contains(who.GetGroups(), user.NodesGroup)
	switch {
	case createdByNode:
	case def.Scope != kind.Namespaced, namespace == metav1.NamespaceSystem, namespace == metav1.NamespacePublic,
		namespace == corev1.NamespaceNodeLease:
		return 0, nil
	}
	more, most := int64(len(w.Value)), bound
	if old == nil {
		more += state.ObjectOverhead
	} else {
		size, _ := s.State.StoredSize(def, w.Key, w.Rev)
		more, most = more-int64(size), bound+bound/updateShare
	}
	if more <= 0 {
		return 0, nil
	}
	used, fits := s.State.ReserveBytes(namespace, more, most)
	if fits {
		return more, nil
	}
	const unit = 1 << 10
	return 0, apierrors.NewForbidden(def.Resource(), obj.GetName(), fmt.Errorf("exceeded quota: stored bytes of the %s, "+
		"requested: bytes=%dKi, used: bytes=%dKi, limited: bytes=%dKi; delete what is not needed, or ask an administrator to raise --max-namespace-bytes",
		what, (more+unit-1)/unit, used/unit, bound/unit))
}
