package runtime

import (
	"context"
	"fmt"

	"proa.dev/node/cri"
)

// Pull brings an image from its registry, through the mirrors that the runtime knows. name is as a Pod would say it.
func Pull(ctx context.Context, socket, name string) error {
	client, err := cri.Dial(socket)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}}); err != nil {
		return fmt.Errorf("pull %s: %w", name, err)
	}
	return nil
}

// Remove removes an image with all its names, and says whether it was there. Containers that run of it go on.
func Remove(ctx context.Context, socket, name string) (was bool, err error) {
	client, err := cri.Dial(socket)
	if err != nil {
		return false, err
	}
	defer client.Close()
	spec := &cri.ImageSpec{Image: name}
	found, err := client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec})
	if err != nil {
		return false, fmt.Errorf("find %s: %w", name, err)
	}
	if found.Image == nil {
		return false, nil
	}
	if _, err := client.Images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: spec}); err != nil {
		return false, fmt.Errorf("remove %s: %w", name, err)
	}
	return true, nil
}
