package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// reading is the available amount and the capacity of something, at one time.
type reading struct {
	available, capacity resource.Quantity
	at                  time.Time
}

// observe reads the eviction signals from a summary. Signals without data are left out, and so are those without a capacity, which is
// unknown then: zero would evict every Pod.
func observe(s *statsv1.Summary) map[Signal]reading {
	out := map[Signal]reading{}
	memory := func(signal Signal, m *statsv1.MemoryStats) {
		if m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil && *m.AvailableBytes+*m.WorkingSetBytes > 0 {
			out[signal] = reading{bytes(*m.AvailableBytes), bytes(*m.AvailableBytes + *m.WorkingSetBytes), m.Time.Time}
		}
	}
	disk := func(space, nodes Signal, f *statsv1.FsStats) {
		if f != nil && f.AvailableBytes != nil && f.CapacityBytes != nil && *f.CapacityBytes > 0 {
			out[space] = reading{bytes(*f.AvailableBytes), bytes(*f.CapacityBytes), f.Time.Time}
		}
		if f != nil && f.InodesFree != nil && f.Inodes != nil && *f.Inodes > 0 {
			out[nodes] = reading{count(*f.InodesFree), count(*f.Inodes), f.Time.Time}
		}
	}
	memory(MemoryAvailable, s.Node.Memory)
	for _, c := range s.Node.SystemContainers {
		if c.Name == statsv1.SystemContainerPods {
			memory(AllocatableMemoryAvailable, c.Memory)
		}
	}
	disk(NodeFsAvailable, NodeFsInodesFree, s.Node.Fs)
	if s.Node.Runtime != nil {
		disk(ImageFsAvailable, ImageFsInodesFree, s.Node.Runtime.ImageFs)
		disk(ContainerFsAvailable, ContainerFsInodesFree, s.Node.Runtime.ContainerFs)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil && *r.MaxPID > 0 {
		out[PIDAvailable] = reading{count(uint64(max(0, *r.MaxPID-*r.NumOfRunningProcesses))), count(uint64(*r.MaxPID)), r.Time.Time}
	}
	return out
}

func bytes(n uint64) resource.Quantity { return *resource.NewQuantity(int64(n), resource.BinarySI) }
func count(n uint64) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// State is what is kept from one check to the next. The zero value is that of a node that has not been checked.
type State struct {
	// first is when each threshold that is crossed was first found crossed, without interruption.
	first map[string]time.Time
	// last is when each condition was last found true.
	last map[corev1.NodeConditionType]time.Time
	// exceeded are the thresholds that were crossed for longer than their grace period.
	exceeded []Threshold
	// readings are the readings of the last check.
	readings map[Signal]reading
}

// Findings are the results of a check.
type Findings struct {
	// Conditions are the pressure conditions that are true now, or were within the transition period, sorted.
	Conditions []corev1.NodeConditionType
	// Shortages say what is short for each condition that is true now, with the figures.
	Shortages map[corev1.NodeConditionType]string
	// Crossed are the thresholds that require an action, the most urgent first.
	Crossed []Threshold
}

// checkThresholds compares readings with thresholds. It is a pure function: what it must remember is in the state that it returns.
func checkThresholds(s State, thresholds []Threshold, now map[Signal]reading, at time.Time, transition time.Duration) (State, Findings) {
	crossed := crossedThresholds(thresholds, now, false)
	// A threshold that was crossed before stays crossed until the minimum reclaim is reached.
	for _, t := range crossedThresholds(s.exceeded, now, true) {
		if !slices.ContainsFunc(crossed, func(x Threshold) bool { return x.key() == t.key() }) {
			crossed = append(crossed, t)
		}
	}
	next := State{first: map[string]time.Time{}, last: map[corev1.NodeConditionType]time.Time{}, readings: now}
	for c, t := range s.last {
		next.last[c] = t
	}
	f := Findings{Shortages: map[corev1.NodeConditionType]string{}}
	for _, t := range crossed {
		if kind := conditionOf(t.Signal); f.Shortages[kind] == "" {
			f.Shortages[kind] = shortage(t, now[t.Signal])
		}
		begin, known := s.first[t.key()]
		if !known {
			begin = at
		}
		next.first[t.key()] = begin
		next.last[conditionOf(t.Signal)] = at
		if at.Sub(begin) < t.Grace {
			continue
		}
		next.exceeded = append(next.exceeded, t)
		// A reading is acted on only once: the effect shows in the next one.
		if before, had := s.readings[t.Signal]; !had || now[t.Signal].at.IsZero() || now[t.Signal].at.After(before.at) {
			f.Crossed = append(f.Crossed, t)
		}
	}
	for c, t := range next.last {
		if at.Sub(t) < transition || at.Equal(t) {
			f.Conditions = append(f.Conditions, c)
		}
	}
	slices.Sort(f.Conditions)
	urgent := func(t Threshold) int {
		if resourceOf(t.Signal) == corev1.ResourceMemory {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(f.Crossed, func(a, b Threshold) int { return urgent(a) - urgent(b) })
	return next, f
}

// crossedThresholds returns the thresholds that are crossed; with reclaim, the minimum reclaim is added to their values.
func crossedThresholds(thresholds []Threshold, now map[Signal]reading, reclaim bool) (out []Threshold) {
	for _, t := range thresholds {
		r, found := now[t.Signal]
		if !found {
			continue
		}
		limit := t.Value.of(r.capacity)
		if reclaim && t.Reclaim != nil {
			limit.Add(t.Reclaim.of(r.capacity))
		}
		if limit.Cmp(r.available) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// Reclaim is what can be freed before a Pod is evicted.
type Reclaim struct{ Containers, Images bool }

// reclaim returns what frees space for a signal: unused containers and images, if they are on its file system.
func reclaim(s Signal, l Layout) Reclaim {
	disk := conditionOf(s) == corev1.NodeDiskPressure
	ofImages := s == ImageFsAvailable || s == ImageFsInodesFree
	ofNode := s == NodeFsAvailable || s == NodeFsInodesFree
	switch {
	case !disk || l.Images && !l.Containers && ofNode:
		return Reclaim{}
	case l.Images && l.Containers:
		return Reclaim{Containers: !ofImages, Images: ofImages}
	}
	return Reclaim{Containers: true, Images: true}
}
