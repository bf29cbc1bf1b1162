package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/lib/quantity"
)

// Signal is an eviction signal: something of which a node can run out.
type Signal string

// The signals, with the names of the kubelet's settings.
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

// Resources that the API does not have, as messages name them.
const (
	inodes corev1.ResourceName = "inodes"
	pids   corev1.ResourceName = "pids"
)

// resourceOf returns the resource of a signal; empty for an unknown signal.
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

// conditionOf returns the Node condition of a signal.
func conditionOf(s Signal) corev1.NodeConditionType {
	switch resourceOf(s) {
	case corev1.ResourceMemory:
		return corev1.NodeMemoryPressure
	case pids:
		return corev1.NodePIDPressure
	}
	return corev1.NodeDiskPressure
}

// Amount is a quantity, or a fraction of the capacity, which may be limited by a quantity.
type Amount struct {
	Quantity *resource.Quantity
	Fraction float32
	// AtMost limits the fraction; nil for no limit.
	AtMost *resource.Quantity
}

// of returns the amount for a capacity.
func (a Amount) of(capacity resource.Quantity) resource.Quantity {
	if a.Quantity != nil {
		return a.Quantity.DeepCopy()
	}
	part := resource.NewQuantity(int64(float64(capacity.Value())*float64(a.Fraction)), resource.BinarySI)
	if a.AtMost != nil && part.Cmp(*a.AtMost) > 0 {
		return a.AtMost.DeepCopy()
	}
	return *part
}

// Threshold is the least available amount of a signal.
type Threshold struct {
	Signal Signal
	Value  Amount
	// Grace is how long it may be crossed; 0 for a hard threshold.
	Grace time.Duration
	// Reclaim is how much more than Value must be available before the threshold counts as no longer crossed; nil for
	// none.
	Reclaim *Amount
}

func (t *Threshold) isHard() bool { return t.Grace == 0 }

// key identifies a threshold.
func (t *Threshold) key() string {
	value := strconv.FormatFloat(float64(t.Value.Fraction), 'g', -1, 32)
	if t.Value.Quantity != nil {
		value = t.Value.Quantity.String()
	}
	if t.Value.AtMost != nil {
		value += ":" + t.Value.AtMost.String()
	}
	return fmt.Sprintf("%s<%s for %s", t.Signal, value, t.Grace)
}

// DefaultHardThresholds returns the default hard thresholds. They are those of kubelets, except that a tenth of a large disk is more
// than Pods can fill between two checks: a laptop with 38 GB free is not short of disk space.
func DefaultHardThresholds() map[string]string {
	return map[string]string{
		string(MemoryAvailable): "100Mi", string(NodeFsAvailable): "10%:5Gi", string(NodeFsInodesFree): "5%",
		string(ImageFsAvailable):  "15%:10Gi",
		string(ImageFsInodesFree): "5%",
	}
}

// Settings are thresholds in the notation of the kubelet's settings, by signal.
type Settings struct{ Hard, Soft, SoftGrace, MinimumReclaim map[string]string }

// Parse parses settings. A hard threshold of the machine's memory also applies to the memory of all Pods together.
func Parse(s Settings) ([]Threshold, error) {
	out, err := parseThresholds(s.Hard)
	if err != nil {
		return nil, err
	}
	soft, err := parseThresholds(s.Soft)
	if err != nil {
		return nil, err
	}
	graces, err := parseGraces(s.SoftGrace)
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
		reclaim, err := parseReclaim(Signal(name), s.MinimumReclaim[name])
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
		if t.Signal == MemoryAvailable && t.isHard() {
			t.Signal = AllocatableMemoryAvailable
			out = append(out, t)
		}
	}
	return out, nil
}

func parseThresholds(of map[string]string) (out []Threshold, err error) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text, signal := of[name], Signal(name)
		if resourceOf(signal) == "" {
			return nil, fmt.Errorf("unsupported eviction signal %v", name)
		}
		if text == "0%" || text == "100%" {
			continue // never crossed
		}
		a, err := parseAmount(text)
		if err != nil {
			return nil, fmt.Errorf("eviction threshold %v: %w", name, err)
		}
		switch {
		case a.Quantity == nil && a.Fraction < 0:
			return nil, fmt.Errorf("eviction percentage threshold %v must be >= 0%%: %s", name, text)
		case a.Quantity == nil && a.Fraction > 1:
			return nil, fmt.Errorf("eviction percentage threshold %v must be <= 100%%: %s", name, text)
		case a.Quantity != nil && a.Quantity.Sign() <= 0:
			return nil, fmt.Errorf("eviction threshold %v must be positive: %s", name, text)
		}
		out = append(out, Threshold{Signal: signal, Value: a})
	}
	return out, nil
}

// parseAmount parses a quantity, a percentage, or a percentage with the largest quantity that it may be: 10%:5Gi.
func parseAmount(text string) (Amount, error) {
	if part, most, limited := strings.Cut(text, "%:"); limited {
		a, err := parseAmount(part + "%")
		if err != nil {
			return Amount{}, err
		}
		q, err := quantity.Parse(most)
		if err == nil && q.Sign() <= 0 {
			err = fmt.Errorf("the largest amount of %s must be positive", text)
		}
		a.AtMost = &q
		return a, err
	}
	if part, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(part, 32)
		if err != nil {
			return Amount{}, err
		}
		return Amount{Fraction: float32(f) / 100}, nil
	}
	q, err := quantity.Parse(text)
	return Amount{Quantity: &q}, err
}

func parseGraces(of map[string]string) (map[Signal]time.Duration, error) {
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

func parseReclaim(signal Signal, text string) (*Amount, error) {
	if resourceOf(signal) == "" {
		return nil, fmt.Errorf("unsupported eviction signal %v", signal)
	}
	a, err := parseAmount(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("eviction minimum reclaim %v: %w", signal, err)
	case a.Quantity == nil && a.Fraction <= 0:
		return nil, fmt.Errorf("eviction percentage minimum reclaim %v must be positive: %s", signal, text)
	case a.Quantity != nil && a.Quantity.Sign() < 0:
		return nil, fmt.Errorf("negative eviction minimum reclaim specified for %v", signal)
	}
	return &a, nil
}

// Reserved returns what hard thresholds keep from Pods.
func Reserved(thresholds []Threshold, capacity corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, t := range thresholds {
		if !t.isHard() {
			continue
		}
		if t.Signal == MemoryAvailable || t.Signal == NodeFsAvailable {
			name := resourceOf(t.Signal)
			out[name] = t.Value.of(capacity[name])
		}
	}
	return out
}

// Layout says which file systems there are.
type Layout struct {
	// Images reports that images are on another file system than what Pods write; Containers reports that the writable
	// layers of containers are not on the file system of the images.
	Images, Containers bool
}

// withContainerFs adds thresholds for the file system of writable layers, equal to those of the file system it is on.
func withContainerFs(all []Threshold, l Layout) []Threshold {
	all = slices.DeleteFunc(slices.Clone(all),
		func(t Threshold) bool { return t.Signal == ContainerFsAvailable || t.Signal == ContainerFsInodesFree })
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
