package volume

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// unknownPlugin is the label of a volume whose plugin is not known, because its claim is not resolved yet.
const unknownPlugin = "N/A"

// mountAndRecord mounts or refreshes a volume, and records how long that took.
func (v *Volumes) mountAndRecord(ctx context.Context, p *corev1.Pod, vol *corev1.Volume, before *mounted) result {
	began := time.Now()
	r := v.mountVolume(ctx, p, vol, before)
	if r.ready != nil && r.ready != before && r.ready.plugin == "" {
		r.ready.plugin = pluginOf(&vol.VolumeSource)
	}
	if before != nil && !before.live || r.unknown || r.waits || ctx.Err() != nil {
		return r // nothing was mounted, or not yet
	}
	plugin := r.plugin
	if r.err == nil {
		plugin = r.ready.plugin
	} else if plugin == "" {
		plugin = pluginOf(&vol.VolumeSource)
		if vol.CSI != nil {
			plugin = pluginCSI // a driver that does not exist must not become a label
		}
	}
	v.Metrics.StorageOperation(plugin, "volume_mount", time.Since(began), r.err)
	return r
}

// pluginOf returns the name of the plugin of a volume that is no claim.
func pluginOf(s *corev1.VolumeSource) string {
	switch {
	case s.EmptyDir != nil:
		return pluginEmptyDir
	case s.HostPath != nil:
		return "kubernetes.io/host-path"
	case s.ConfigMap != nil:
		return pluginConfigMap
	case s.Secret != nil:
		return pluginSecret
	case s.DownwardAPI != nil:
		return pluginDownward
	case s.Projected != nil:
		return pluginProjected
	case s.NFS != nil:
		return pluginNFS
	case s.Image != nil:
		return "kubernetes.io/image"
	case s.CSI != nil:
		return pluginCSI + ":" + s.CSI.Driver
	}
	return unknownPlugin
}

// pluginOfPersistent returns the name of the plugin of a persistent volume, and whether it is mounted: the driver of a volume
// that is not must not become a label.
func pluginOfPersistent(pv *corev1.PersistentVolume, isMounted bool) string {
	switch s := &pv.Spec.PersistentVolumeSource; {
	case s.CSI != nil && isMounted:
		return pluginCSI + ":" + s.CSI.Driver
	case s.CSI != nil:
		return pluginCSI
	case s.Local != nil:
		return pluginLocal
	case s.HostPath != nil:
		return "kubernetes.io/host-path"
	case s.NFS != nil:
		return pluginNFS
	}
	return unknownPlugin
}

// Collector returns the metric that counts volumes.
func (v *Volumes) Collector() prometheus.Collector {
	return volumeCounter{v, prometheus.NewDesc("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager",
		[]string{"plugin_name", "state"}, nil)}
}

// volumeCounter counts the volumes that are mounted, and those that should be.
type volumeCounter struct {
	volumes *Volumes
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c volumeCounter) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c volumeCounter) Collect(ch chan<- prometheus.Metric) {
	type labels struct{ plugin, state string }
	counts := map[labels]int{}
	c.volumes.mu.Lock()
	for _, k := range c.volumes.pods {
		p, ready, _ := k.current()
		for _, vol := range usedVolumes(p) {
			var plugin string
			if m := ready[vol.Name]; m != nil {
				plugin = m.plugin
				counts[labels{plugin, "actual_state_of_world"}]++
			} else if vol.CSI != nil {
				plugin = pluginCSI
			} else {
				plugin = pluginOf(&vol.VolumeSource)
			}
			counts[labels{plugin, "desired_state_of_world"}]++
		}
	}
	c.volumes.mu.Unlock()
	for l, n := range counts {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), l.plugin, l.state)
	}
}
