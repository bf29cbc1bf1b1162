package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
)

// GCSettings configures the garbage collection of images.
type GCSettings struct {
	// High is the disk usage, in percent, at which images are deleted, and Low the usage at which that ends. With a
	// High of 100 no image is deleted because of the disk.
	High, Low int
	// Free and FreeAfter are bytes: while Free are free, images stay however full the disk is, and when FreeAfter are free, the deletion
	// ends; 0 for no such bounds.
	Free, FreeAfter uint64
	// Min is the minimum age of an image that is deleted, Max the age at which an unused image is deleted in any case;
	// 0 for never.
	Min, Max time.Duration
}

// The percentages of kubelets, and the bytes that are enough on a large disk whatever the percentages are. They are more than the
// thresholds of eviction, so that images go before Pods do.
const (
	DefaultHigh, DefaultLow = 85, 80

	enoughFree, enoughAfter = 15 << 30, 20 << 30
)

// NewGCSettings returns settings with two percentages. The defaults are limited by bytes, others are taken literally.
func NewGCSettings(high, low int) GCSettings {
	k := GCSettings{High: high, Low: low, Min: 2 * time.Minute}
	if high == DefaultHigh && low == DefaultLow {
		k.Free, k.FreeAfter = enoughFree, enoughAfter
	}
	return k
}

func (k GCSettings) check() error {
	switch {
	case k.High < 0 || k.High > 100:
		return fmt.Errorf("invalid HighThresholdPercent %d, must be in range [0-100]", k.High)
	case k.Low < 0 || k.Low > 100:
		return fmt.Errorf("invalid LowThresholdPercent %d, must be in range [0-100]", k.Low)
	case k.Low > k.High:
		return fmt.Errorf("LowThresholdPercent %d can not be higher than HighThresholdPercent %d", k.Low, k.High)
	}
	return nil
}

// Collector deletes unused images.
type Collector struct {
	store   Store
	images  *Images
	keep    GCSettings
	note    func(eventType, reason, message string)
	log     *slog.Logger
	started time.Time

	mu   sync.Mutex // guards seen
	seen map[string]*sighting
}

// sighting is when an image was first seen and last used, since the agent runs.
type sighting struct{ first, used time.Time }

// NewCollector makes a collector. note records an Event about the node; it may be nil.
func NewCollector(s Store, i *Images, k GCSettings, note func(eventType, reason, message string), log *slog.Logger) (*Collector, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	if note == nil {
		note = func(string, string, string) {}
	}
	return &Collector{store: s, images: i, keep: k, note: note, log: log, started: time.Now(), seen: map[string]*sighting{}}, nil
}

// period is the time between two collections.
const period = 5 * time.Minute

// Run collects images until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	if list, err := c.store.List(ctx); err == nil {
		c.images.records.recover(list, c.log)
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	fails := 0
	for {
		err := c.Collect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			fails = 0
		default:
			// The disk may be full of something else; an Event says so if it lasts.
			if fails++; fails > 1 {
				c.note(corev1.EventTypeWarning, "ImageGCFailed", err.Error())
			}
			c.log.ErrorContext(ctx, "cannot remove images", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Collect deletes images that are too old, and more if the disk is too full.
func (c *Collector) Collect(ctx context.Context) error {
	now := time.Now()
	idle, err := c.findUnused(ctx, now)
	if err != nil {
		return err
	}
	if idle, err = c.deleteOld(ctx, idle, now); err != nil {
		return err
	}
	size, free, err := c.store.DiskSpace(ctx)
	if err != nil {
		return err
	}
	if size == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		c.note(corev1.EventTypeWarning, "InvalidDiskCapacity", err.Error())
		return err
	}
	full, wanted := pressure(size, free, c.keep)
	if wanted <= 0 {
		return nil
	}
	freed, err := c.free(ctx, idle, wanted, now)
	if err != nil {
		return err
	}
	if freed < wanted {
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", full, formatSize(size), freed)
		c.note(corev1.EventTypeWarning, "FreeDiskSpaceFailed", message)
		return errors.New(message)
	}
	return nil
}

// pressure returns the disk usage in percent, and how many bytes must be freed.
func pressure(size, free uint64, k GCSettings) (full int, wanted int64) {
	free = min(free, size)
	full = 100 - int(free*100/size)
	if full < k.High || k.Free > 0 && free >= k.Free {
		return full, 0
	}
	wanted = int64(size) / 100 * int64(100-k.Low)
	if k.FreeAfter > 0 {
		wanted = min(wanted, int64(k.FreeAfter))
	}
	return full, max(wanted-int64(free), 1)
}

// DeleteUnused deletes every unused image; the eviction manager calls it under disk pressure.
func (c *Collector) DeleteUnused(ctx context.Context) error {
	now := time.Now()
	idle, err := c.findUnused(ctx, now)
	if err != nil {
		return err
	}
	_, err = c.free(ctx, idle, math.MaxInt64, now)
	return err
}

// unused is an image that no container uses.
type unused struct {
	*cri.Image
	sighting
}

// findUnused updates the sightings of all images, and returns the unused ones, least recently used first.
func (c *Collector) findUnused(ctx context.Context, now time.Time) ([]unused, error) {
	list, err := c.store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	used, err := c.store.InUse(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the images in use: %w", err)
	}
	taken := map[string]bool{}
	for _, name := range used {
		taken[name] = name != ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var idle []unused
	here := map[string]bool{}
	for _, image := range list {
		here[image.Id] = true
		s := c.seen[image.Id]
		if s == nil {
			s = &sighting{first: now}
			c.seen[image.Id] = s
		}
		if taken[image.Id] || slices.ContainsFunc(image.RepoTags, func(n string) bool { return taken[n] }) ||
			slices.ContainsFunc(image.RepoDigests, func(n string) bool { return taken[n] }) {
			s.used = now
		} else if !image.Pinned {
			idle = append(idle, unused{image, *s})
		}
	}
	for id := range c.seen {
		if !here[id] {
			delete(c.seen, id)
		}
	}
	slices.SortFunc(idle, func(a, b unused) int { return cmp.Or(a.used.Compare(b.used), a.first.Compare(b.first)) })
	return idle, nil
}

// deleteOld deletes images that have been unused for too long. Their use before the agent started is unknown, so nothing is
// deleted in the first Max of its run.
func (c *Collector) deleteOld(ctx context.Context, idle []unused, now time.Time) (left []unused, err error) {
	if c.keep.Max == 0 || now.Sub(c.started) <= c.keep.Max {
		return idle, nil
	}
	var errs []error
	for _, i := range idle {
		if now.Sub(i.used) <= c.keep.Max || now.Sub(i.first) <= c.keep.Max {
			left = append(left, i)
			continue
		}
		if err := c.remove(ctx, i); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", c.keep.Max, errors.Join(errs...))
	}
	return left, nil
}

// free deletes images until enough bytes are freed.
func (c *Collector) free(ctx context.Context, idle []unused, wanted int64, now time.Time) (freed int64, err error) {
	var errs []error
	for _, i := range idle {
		if freed >= wanted {
			break
		}
		// An image that has just been pulled is about to be used.
		if now.Sub(i.first) < c.keep.Min {
			continue
		}
		if err := c.remove(ctx, i); err != nil {
			errs = append(errs, err)
			continue
		}
		freed += int64(i.Size)
	}
	if left, err := c.store.List(ctx); err == nil {
		c.images.records.prune(left, now)
	}
	if len(errs) > 0 {
		return freed, fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", wanted, freed, errors.Join(errs...))
	}
	return freed, nil
}

func (c *Collector) remove(ctx context.Context, i unused) error {
	c.log.InfoContext(ctx, "deleting an unused image", "image", i.Id, "size", i.Size)
	if err := c.store.Remove(ctx, i.Id); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.seen, i.Id)
	c.mu.Unlock()
	return nil
}

// formatSize formats a size.
func formatSize(bytes uint64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	size := float64(bytes) / 1024
	for size >= 1024 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}
