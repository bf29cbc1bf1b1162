package nodestatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The server does not trust a node about its addresses: it accepts those that it sees itself, and those that an
// administrator allows. A node that is refused an address reports without it, and is not ready: the condition shows
// why, and where the address can be allowed.

// dropRefused removes the address from the facts that the server has refused when the Node was written, and reports whether
// there was one. It becomes a reason for the node not to be ready.
func (f *Facts) dropRefused(written *corev1.Node, err error) bool {
	refused, why := refusedAddress(written, err)
	before := len(f.Addresses)
	f.Addresses = slices.DeleteFunc(slices.Clone(f.Addresses), func(a corev1.NodeAddress) bool { return why != "" && a == refused })
	if len(f.Addresses) == before {
		return false
	}
	text := fmt.Sprintf("the server refuses the address %s: %s", refused.Address, why)
	f.Refused = append(f.Refused, text)
	f.Trouble = append(f.Trouble, errors.New(text))
	return true
}

// refusedAddress returns the address of a Node that the server has refused, and why; the reason is empty if the error
// is about something else.
func refusedAddress(written *corev1.Node, err error) (corev1.NodeAddress, string) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) || status.ErrStatus.Details == nil {
		return corev1.NodeAddress{}, ""
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		for i, a := range written.Status.Addresses {
			if cause.Field == fmt.Sprintf("status.addresses[%d].address", i) && cause.Message != "" {
				return a, cause.Message
			}
		}
	}
	return corev1.NodeAddress{}, ""
}

// reportRefused logs and records as an Event which addresses the server refuses, when that has changed.
func (n *Node) reportRefused(f *Facts) {
	text := strings.Join(f.Refused, "; ")
	if text == n.refused {
		return
	}
	n.refused = text
	if text == "" {
		n.log.Info("the server accepts all addresses of the node", "node", n.Name)
		return
	}
	n.log.Error("the server refuses an address of the node, which is not ready without it", "node", n.Name, "refused", f.Refused)
	n.recordEvent(corev1.EventTypeWarning, "AddressRefused", text)
}
