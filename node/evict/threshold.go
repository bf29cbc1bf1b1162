package evict

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/quantity"
)

// Signal is something that can run short.
type Signal string

// The signals, as they are named in settings.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available"
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// Resources that no API has, as messages name them.
const (
	inodes corev1.ResourceName = "inodes"
	pids   corev1.ResourceName = "pids"
)

// resourceOf is what runs short when a signal does; empty for a signal that does not exist.
func resourceOf(s Signal) corev1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return corev1.ResourceMemory
	case NodeFsAvailable, ImageFsAvailable, ContainerFsAvailable:
		return corev1.ResourceEphemeralStorage
	case NodeFsInodesFree, ImageFsInodesFree, ContainerFsInodesFree:
		return inodes
	case PIDAvailable:
		return pids
	}
	return ""
}

// conditionOf is the condition of the Node that tells of it.
func conditionOf(s Signal) corev1.NodeConditionType {
	switch resourceOf(s) {
	case corev1.ResourceMemory:
		return corev1.NodeMemoryPressure
	case pids:
		return corev1.NodePIDPressure
	}
	return corev1.NodeDiskPressure
}

// Amount is a quantity, or a part of what there is.
type Amount struct {
	Quantity *resource.Quantity
	Part     float32
}

// of is the amount when there is so much.
func (a Amount) of(capacity resource.Quantity) resource.Quantity {
	if a.Quantity != nil {
		return a.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(a.Part)), resource.BinarySI)
}

// Threshold is how little there may be.
type Threshold struct {
	Signal Signal
	Value  Amount
	// Grace is how long there may be less; none for a hard threshold.
	Grace time.Duration
	// Reclaim is how much more than Value must be there before it is over; nil for none.
	Reclaim *Amount
}

func (t *Threshold) hard() bool { return t.Grace == 0 }

// key tells thresholds apart.
func (t *Threshold) key() string {
	value := strconv.FormatFloat(float64(t.Value.Part), 'g', -1, 32)
	if t.Value.Quantity != nil {
		value = t.Value.Quantity.String()
	}
	return fmt.Sprintf("%s<%s for %s", t.Signal, value, t.Grace)
}

// Default are the hard thresholds of a node that was told nothing.
func Default() map[string]string {
	return map[string]string{
		string(MemoryAvailable): "100Mi", string(NodeFsAvailable): "10%", string(NodeFsInodesFree): "5%", string(ImageFsAvailable): "15%", string(ImageFsInodesFree): "5%",
	}
}

// Settings are thresholds as people write them, each by its signal.
type Settings struct{ Hard, Soft, SoftGrace, MinimumReclaim map[string]string }

// Parse reads settings. Memory that Pods together may use is watched like that of the machine.
func Parse(s Settings) ([]Threshold, error) {
	out, err := statements(s.Hard)
	if err != nil {
		return nil, err
	}
	soft, err := statements(s.Soft)
	if err != nil {
		return nil, err
	}
	graces, err := durations(s.SoftGrace)
	if err != nil {
		return nil, err
	}
	for i := range soft {
		grace, found := graces[soft[i].Signal]
		if !found {
			return nil, fmt.Errorf("grace period must be specified for the soft eviction threshold %v", soft[i].Signal)
		}
		soft[i].Grace = grace
	}
	out = append(out, soft...)
	for _, name := range slices.Sorted(maps.Keys(s.MinimumReclaim)) {
		reclaim, err := reclaims(Signal(name), s.MinimumReclaim[name])
		if err != nil {
			return nil, err
		}
		for i := range out {
			if out[i].Signal == Signal(name) {
				out[i].Reclaim = reclaim
			}
		}
	}
	for _, t := range out {
		if t.Signal == MemoryAvailable && t.hard() {
			t.Signal = AllocatableMemoryAvailable
			out = append(out, t)
		}
	}
	return out, nil
}

func statements(of map[string]string) (out []Threshold, err error) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text, signal := of[name], Signal(name)
		if resourceOf(signal) == "" {
			return nil, fmt.Errorf("unsupported eviction signal %v", name)
		}
		if text == "0%" || text == "100%" {
			continue // never
		}
		a, err := amount(text)
		if err != nil {
			return nil, fmt.Errorf("eviction threshold %v: %w", name, err)
		}
		switch {
		case a.Quantity == nil && a.Part < 0:
			return nil, fmt.Errorf("eviction percentage threshold %v must be >= 0%%: %s", name, text)
		case a.Quantity == nil && a.Part > 1:
			return nil, fmt.Errorf("eviction percentage threshold %v must be <= 100%%: %s", name, text)
		case a.Quantity != nil && a.Quantity.Sign() <= 0:
			return nil, fmt.Errorf("eviction threshold %v must be positive: %s", name, text)
		}
		out = append(out, Threshold{Signal: signal, Value: a})
	}
	return out, nil
}

func amount(text string) (Amount, error) {
	if part, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(part, 32)
		if err != nil {
			return Amount{}, err
		}
		return Amount{Part: float32(f) / 100}, nil
	}
	q, err := quantity.Parse(text)
	return Amount{Quantity: &q}, err
}

func durations(of map[string]string) (map[Signal]time.Duration, error) {
	out := map[Signal]time.Duration{}
	for name, text := range of {
		if resourceOf(Signal(name)) == "" {
			return nil, fmt.Errorf("unsupported eviction signal %v", name)
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("grace period of the eviction threshold %v: %w", name, err)
		}
		if d < 0 {
			return nil, fmt.Errorf("invalid eviction grace period specified: %v, must be a positive value", text)
		}
		out[Signal(name)] = d
	}
	return out, nil
}

func reclaims(signal Signal, text string) (*Amount, error) {
	if resourceOf(signal) == "" {
		return nil, fmt.Errorf("unsupported eviction signal %v", signal)
	}
	a, err := amount(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("eviction minimum reclaim %v: %w", signal, err)
	case a.Quantity == nil && a.Part <= 0:
		return nil, fmt.Errorf("eviction percentage minimum reclaim %v must be positive: %s", signal, text)
	case a.Quantity != nil && a.Quantity.Sign() < 0:
		return nil, fmt.Errorf("negative eviction minimum reclaim specified for %v", signal)
	}
	return &a, nil
}

// Reserved is what hard thresholds keep from Pods.
func Reserved(thresholds []Threshold, capacity corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, t := range thresholds {
		if !t.hard() {
			continue
		}
		if t.Signal == MemoryAvailable || t.Signal == NodeFsAvailable {
			name := resourceOf(t.Signal)
			out[name] = t.Value.of(capacity[name])
		}
	}
	return out
}

// Layout says on which filesystems things are.
type Layout struct {
	// Images says that images are on another filesystem than what Pods write, Containers that the writable layers of containers
	// are not with the images.
	Images, Containers bool
}

// forContainers adds thresholds for the filesystem of writable layers: they are those of the filesystem it is on.
func forContainers(all []Threshold, l Layout) []Threshold {
	all = slices.DeleteFunc(slices.Clone(all), func(t Threshold) bool { return t.Signal == ContainerFsAvailable || t.Signal == ContainerFsInodesFree })
	like := map[Signal]Signal{NodeFsAvailable: ContainerFsAvailable, NodeFsInodesFree: ContainerFsInodesFree}
	if l.Images && !l.Containers {
		like = map[Signal]Signal{ImageFsAvailable: ContainerFsAvailable, ImageFsInodesFree: ContainerFsInodesFree}
	}
	for _, t := range all {
		if signal, ok := like[t.Signal]; ok {
			t.Signal = signal
			all = append(all, t)
		}
	}
	return all
}
