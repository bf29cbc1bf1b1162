package image

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"proa.dev/node/cri"
)

// Service is the part of the runtime that pulls images.
type Service interface {
	// Status returns what the runtime knows of an image, nil if it is not present.
	Status(ctx context.Context, spec *cri.ImageSpec) (*cri.Image, error)
	// Pull pulls an image and returns the runtime's reference to it. auth is nil for an anonymous pull.
	Pull(ctx context.Context, spec *cri.ImageSpec, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (string, error)
	Remove(ctx context.Context, id string) error
}

// Store is the part of the runtime that the Collector needs.
type Store interface {
	List(ctx context.Context) ([]*cri.Image, error)
	Remove(ctx context.Context, id string) error
	// InUse returns the images that containers use, running or not, and those that they mount: ids or names.
	InUse(ctx context.Context) ([]string, error)
	// DiskSpace returns the size of the file system of images, and its free space, in bytes.
	DiskSpace(ctx context.Context) (size, free uint64, err error)
}

// Runtime is the image service of a CRI runtime. It implements Service and Store.
type Runtime struct{ client *cri.Client }

// OfCRI makes a Runtime from a CRI client.
func OfCRI(c *cri.Client) Runtime { return Runtime{c} }

// Status returns what the runtime knows of an image.
func (r Runtime) Status(ctx context.Context, spec *cri.ImageSpec) (*cri.Image, error) {
	answer, err := r.client.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, err
	}
	return answer.Image, nil
}

// Pull pulls an image.
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

// InUse reads the status of every container, because only that names the images it mounts.
func (r Runtime) InUse(ctx context.Context) (out []string, err error) {
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

// DiskSpace asks the kernel about the file system that the runtime names.
func (r Runtime) DiskSpace(ctx context.Context) (size, free uint64, err error) {
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
