package eviction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/podstate"
)

// message says why a Pod is evicted: what the node lacks, and which containers use more of it than they requested.
func message(name corev1.ResourceName, p *corev1.Pod, u *statsv1.PodStats, short []Threshold, now map[Signal]reading) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", name)
	for _, t := range short {
		if r, found := now[t.Signal]; found && resourceOf(t.Signal) == name {
			limit := t.Value.of(r.capacity)
			fmt.Fprintf(&b, "Threshold quantity: %v, available: %v. ", limit.String(), r.available.String())
			break
		}
	}
	if u == nil {
		return b.String()
	}
	if p.Spec.Resources != nil && name == corev1.ResourceMemory && u.Memory != nil {
		if asked, found := p.Spec.Resources.Requests[name]; found {
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %v. ", p.Name,
				inBytes(number(u.Memory.WorkingSetBytes)), asked.String(), name)
		}
	}
	all := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i := range u.Containers {
		at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == u.Containers[i].Name })
		use, known := consumption(&u.Containers[i], name)
		if at < 0 || !known {
			continue
		}
		if asked := all[at].Resources.Requests[name]; use.Cmp(asked) > 0 {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ", all[at].Name, use, asked.String(), name)
		}
	}
	return b.String()
}

// shortage says which threshold is crossed, by how much.
func shortage(t Threshold, r reading) string {
	limit := t.Value.of(r.capacity)
	amount := func(q resource.Quantity) string { return q.String() }
	if name := resourceOf(t.Signal); name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
		amount = func(q resource.Quantity) string { return fmt.Sprintf("%.1f GiB", float64(q.Value())/(1<<30)) }
	}
	share := ""
	if t.Value.Quantity == nil {
		share = fmt.Sprintf(" (%.3g%%)", t.Value.Fraction*100)
		if t.Value.AtMost != nil {
			share = fmt.Sprintf(" (%.3g%%, at most %s)", t.Value.Fraction*100, t.Value.AtMost)
		}
	}
	return fmt.Sprintf("%s was %s of %s, below its threshold %s%s", t.Signal, amount(r.available), amount(r.capacity), amount(limit), share)
}

// consumption returns how much a container uses of a resource.
func consumption(c *statsv1.ContainerStats, name corev1.ResourceName) (*resource.Quantity, bool) {
	switch {
	case name == corev1.ResourceMemory && c.Memory != nil && c.Memory.WorkingSetBytes != nil:
		return inBytes(number(c.Memory.WorkingSetBytes)), true
	case name == corev1.ResourceEphemeralStorage && c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil &&
		c.Logs.UsedBytes != nil:
		return inBytes(number(c.Rootfs.UsedBytes) + number(c.Logs.UsedBytes)), true
	}
	return nil, false
}

// exceededLimit returns which limit of local storage a Pod exceeds, empty if none, and the eviction signal of that limit in metrics.
func exceededLimit(p *corev1.Pod, u *statsv1.PodStats, l Layout) (message, signal string) {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		for i := range u.VolumeStats {
			if s := &u.VolumeStats[i]; s.Name == v.Name && inBytes(number(s.UsedBytes)).Cmp(*v.EmptyDir.SizeLimit) > 0 {
				message := fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
				return message, "emptydirfs.limit"
			}
		}
	}
	if limit, found := resources.PodLimits(p, resources.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]; found &&
		u.EphemeralStorage != nil {
		if inBytes(number(u.EphemeralStorage.UsedBytes)).Cmp(limit) > 0 {
			return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String()), "ephemeralpodfs.limit"
		}
	}
	for i := range u.Containers {
		s := &u.Containers[i]
		limit, found := limitOf(p, s.Name)
		if !found {
			continue
		}
		use := disk(s.Logs)
		if !l.Images {
			use += disk(s.Rootfs)
		}
		if limit.Cmp(*inBytes(use)) < 0 {
			message := fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", s.Name, limit.String())
			return message, "ephemeralcontainerfs.limit"
		}
	}
	return "", ""
}

func disk(f *statsv1.FsStats) int64 {
	if f == nil {
		return 0
	}
	return number(f.UsedBytes)
}

// limitOf returns the local storage limit of a regular container or sidecar.
func limitOf(p *corev1.Pod, name string) (resource.Quantity, bool) {
	for _, c := range p.Spec.Containers {
		if c.Name == name {
			q, found := c.Resources.Limits[corev1.ResourceEphemeralStorage]
			return q, found && !q.IsZero()
		}
	}
	for _, c := range p.Spec.InitContainers {
		if c.Name == name && podstate.IsSidecar(&c) {
			q, found := c.Resources.Limits[corev1.ResourceEphemeralStorage]
			return q, found && !q.IsZero()
		}
	}
	return resource.Quantity{}, false
}
