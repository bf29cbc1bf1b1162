package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

type noVolumes struct{}

func (noVolumes) Mount(context.Context, *corev1.Pod) error { return nil }
func (noVolumes) Binds(context.Context, *corev1.Pod, *corev1.Container, func(string) (string, error)) ([]*cri.Mount, []*cri.Device, error) {
	return nil, nil, nil
}
func (noVolumes) Unmount(context.Context, types.UID) error  { return nil }
func (noVolumes) Left(context.Context) ([]types.UID, error) { return nil, nil }
