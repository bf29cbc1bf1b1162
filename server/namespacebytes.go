package server

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/state"
)

// updateShare is the part of the bound of a namespace by which updates may exceed it: what is there already still gets its status.
const updateShare = 4

// reserveNamespaceBytes refuses a write that makes what its namespace has in the store exceed the bound, and otherwise returns the bytes
// that it has reserved until the write is made. What was written a moment ago, and no cache shows yet, does not count. Deletions, and the
// namespaces of the system, are not bounded.
func (s *Server) reserveNamespaceBytes(def *kind.Def, obj, old kind.Object, w *kv.Write) (reserved int64, err error) {
	bound, namespace := s.NamespaceBytes, obj.GetNamespace()
	if bound <= 0 || def.Scope != kind.Namespaced || w.UseReserve {
		return 0, nil
	}
	switch namespace {
	case metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
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
	return 0, apierrors.NewForbidden(def.Resource(), obj.GetName(), fmt.Errorf("exceeded quota: stored bytes of the namespace, "+
		"requested: bytes=%dKi, used: bytes=%dKi, limited: bytes=%dKi; delete what is not needed, or ask an administrator to raise --max-namespace-bytes",
		(more+unit-1)/unit, used/unit, bound/unit))
}
