package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

type present struct{ *cri.Client }

func (b present) Ensure(ctx context.Context, _ *corev1.Pod, c *corev1.Container) (*cri.Image, error) {
	r, err := b.Client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: c.Image}})
	if err != nil || r.Image == nil {
		return nil, &fact.Waiting{Reason: "ErrImagePull", Message: fmt.Sprint(err)}
	}
	return r.Image, nil
}
