package stats

import (
	"context"
	"fmt"

	"proa.dev/node/cri"
)

// OfCRI makes a Runtime from a CRI client.
func OfCRI(c *cri.Client) Runtime { return criRuntime{c} }

type criRuntime struct{ *cri.Client }

// Layers returns the sizes of the writable layers of containers.
func (a criRuntime) Layers(ctx context.Context) (map[string]Size, error) {
	all, err := a.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the sizes of containers: %w", err)
	}
	out := map[string]Size{}
	for _, s := range all.Stats {
		out[s.GetAttributes().GetId()] = sizeOf(s.GetWritableLayer())
	}
	return out, nil
}

// Filesystems returns the file systems of images and of writable layers; if there is only one, it is both.
func (a criRuntime) Filesystems(ctx context.Context) (images, containers Disk, err error) {
	info, err := a.Images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil {
		return images, containers, fmt.Errorf("ask for the filesystems of images: %w", err)
	}
	if list := info.ImageFilesystems; len(list) > 0 {
		images = Disk{list[0].GetFsId().GetMountpoint(), sizeOf(list[0])}
	}
	containers = images
	if list := info.ContainerFilesystems; len(list) > 0 {
		containers = Disk{list[0].GetFsId().GetMountpoint(), sizeOf(list[0])}
	}
	return images, containers, nil
}

func sizeOf(u *cri.FilesystemUsage) Size {
	return Size{Bytes: u.GetUsedBytes().GetValue(), Inodes: u.GetInodesUsed().GetValue()}
}
