package core

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
)

var errCIDRTaken = errors.New("provided CIDR is already allocated")

// podCIDRKey is the key whose owner is the node that has a pod CIDR. One network has one key, however it is written.
func podCIDRKey(cidr string) (string, bool) {
	_, network, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return "", false
	}
	return "/registry/proa/podcidrs/" + network.String(), true
}

// beginNode takes the pod CIDRs that a node is given, and gives them back when it goes, in the transaction that writes or
// removes it: no two nodes have the same.
func beginNode(_ context.Context, tx kind.Txn, n, old *corev1.Node) error {
	var has, had []string
	if n != nil {
		has = n.Spec.PodCIDRs
	}
	if old != nil {
		had = old.Spec.PodCIDRs
	}
	if slices.Equal(has, had) {
		return nil
	}
	claimed, kept := map[string]bool{}, map[string]bool{}
	for _, cidr := range had {
		if key, ok := podCIDRKey(cidr); ok {
			claimed[key] = true
		}
	}
	for i, cidr := range has {
		key, ok := podCIDRKey(cidr)
		if ok && !claimed[key] && !kept[key] {
			tx.Claim(key, n.Name, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, n.Name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "podCIDRs").Index(i), cidr, errCIDRTaken.Error()),
			}))
		}
		kept[key] = true
	}
	for key := range claimed {
		if !kept[key] {
			tx.Release(key)
		}
	}
	return nil
}
