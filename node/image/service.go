package image

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"proa.dev/node/cri"
)

// Service is the part of a runtime that keeps images.
type Service interface {
	// Status is what the runtime knows of an image, nil if it is not here.
	Status(ctx context.Context, spec *cri.ImageSpec) (*cri.Image, error)
	// Pull brings an image and returns what the runtime calls it. auth is nil for nobody.
	Pull(ctx context.Context, spec *cri.ImageSpec, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (string, error)
}

// Store is what a collector of images needs.
type Store interface {
	List(ctx context.Context) ([]*cri.Image, error)
	Remove(ctx context.Context, id string) error
	// Used are the images that containers have, running or not, and those that they mount: ids or names.
	Used(ctx context.Context) ([]string, error)
	// Room is the size of the disk that images are on, and what is free of it, in bytes.
	Room(ctx context.Context) (size, free uint64, err error)
}

// Runtime is the images of a CRI runtime. It satisfies Service and Store.
type Runtime struct{ client *cri.Client }

// OfCRI makes a Runtime.
func OfCRI(c *cri.Client) Runtime { return Runtime{c} }

// Status is what the runtime knows of an image.
func (r Runtime) Status(ctx context.Context, spec *cri.ImageSpec) (*cri.Image, error) {
	answer, err := r.client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, err
	}
	return answer.Image, nil
}

// Pull brings an image.
func (r Runtime) Pull(ctx context.Context, spec *cri.ImageSpec, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (string, error) {
	answer, err := r.client.Images.PullImage(ctx, &cri.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: sandbox})
	if err != nil {
		return "", err
	}
	return answer.ImageRef, nil
}

// List lists the images.
func (r Runtime) List(ctx context.Context) ([]*cri.Image, error) {
	answer, err := r.client.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return answer.Images, nil
}

// Remove removes an image with all its names.
func (r Runtime) Remove(ctx context.Context, id string) error {
	_, err := r.client.Images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: id}})
	return err
}

// Used asks every container, because only its status names the images it mounts.
func (r Runtime) Used(ctx context.Context) (out []string, err error) {
	answer, err := r.client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, c := range answer.Containers {
		out = append(out, c.ImageRef, c.ImageId, c.GetImage().GetImage())
		status, err := r.client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id})
		if cri.NotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, mount := range status.GetStatus().GetMounts() {
			if image := mount.GetImage().GetImage(); image != "" {
				out = append(out, image)
			}
		}
	}
	return out, nil
}

// Room asks the kernel about the disk that the runtime names.
func (r Runtime) Room(ctx context.Context) (size, free uint64, err error) {
	answer, err := r.client.Images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil {
		return 0, 0, err
	}
	if len(answer.ImageFilesystems) == 0 {
		return 0, 0, fmt.Errorf("the runtime does not say where it keeps images")
	}
	path := answer.ImageFilesystems[0].GetFsId().GetMountpoint()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("the disk of images at %s: %w", path, err)
	}
	return st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize), nil
}
