package core

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// connectLog opens the log of a container. A pod that no node runs has written nothing.
func connectLog(ctx context.Context, d kind.Door, p *corev1.Pod) error {
	if p.Spec.NodeName == "" {
		return nil
	}
	return connectNode(ctx, d, p)
}

// connectNode opens a stream through the node that runs a pod.
func connectNode(ctx context.Context, d kind.Door, p *corev1.Pod) error {
	if p.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	if _, err := d.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", p.Spec.NodeName); apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(podResource(), p.Spec.NodeName) // clients know it under this name
	}
	return noAgent(p)
}

// connectAddress opens a connection to the address of a pod.
func connectAddress(_ context.Context, _ kind.Door, p *corev1.Pod) error {
	if ip := net.ParseIP(podIP(p)); ip == nil || !ip.IsGlobalUnicast() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return noAgent(p)
}

func noAgent(p *corev1.Pod) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("no node agent is connected for node %q", p.Spec.NodeName))
}
