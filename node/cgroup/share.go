package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/quantity"
)

// updateRequests updates the requests that the QoS cgroups are computed from.
func (t *Tree) updateRequests(p *corev1.Pod) error {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	now := podRequests{class: QOSClass(p), milli: quantity.MilliValue(requests.Cpu()), memory: quantity.Value(requests.Memory())}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.requests[p.UID]; ok && old == now {
		return nil
	}
	t.requests[p.UID] = now
	return t.updateTiers()
}

// updateTiers sets the limits of the QoS cgroups according to the requests of their Pods.
func (t *Tree) updateTiers() error {
	if t.Policy.Reserve && t.Host.Version == 2 {
		// Memory protection needs the same protection in the cgroups above.
		if err := t.set(t.all, t.limitsOfAll()); err != nil {
			return err
		}
	}
	return t.set(t.tier(corev1.PodQOSBurstable), t.burstable())
}

// sum adds up the requests of the Pods of a QoS class.
func (t *Tree) sum(class corev1.PodQOSClass) (out podRequests) {
	for _, a := range t.requests {
		if a.class == class {
			out.milli += a.milli
			out.memory += a.memory
		}
	}
	return out
}

func (t *Tree) limitsOfAll() Limits {
	l := t.total
	var hard, soft int64
	if t.Policy.Reserve {
		soft = t.sum(corev1.PodQOSBurstable).memory
		hard = t.sum(corev1.PodQOSGuaranteed).memory + soft
	}
	l.Unified = map[string]string{"memory.min": strconv.FormatInt(hard, 10), "memory.low": strconv.FormatInt(soft, 10)}
	return l
}

func (t *Tree) burstable() Limits {
	sum := t.sum(corev1.PodQOSBurstable)
	if !t.Policy.Reserve {
		sum.memory = 0
	}
	l := Limits{Shares: new(Shares(sum.milli)), Huge: map[string]int64{},
		Unified: map[string]string{"memory.low": strconv.FormatInt(sum.memory, 10)}}
	for _, size := range t.Host.Pages {
		l.Huge[size] = unboundHuge
	}
	return l
}

// restoreRequests restores the requests of the Pods of an earlier agent from their cgroups. It need not be exact: Ensure
// corrects it.
func (t *Tree) restoreRequests() {
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable} {
		tier := t.Host.dir("cpu", t.tier(class).path(t.Driver))
		entries, err := os.ReadDir(tier)
		if err != nil {
			continue
		}
		for _, e := range entries {
			uid, ok := uidOf(t.Driver, e.Name())
			if _, known := t.requests[uid]; !ok || known {
				continue
			}
			dir := filepath.Join(tier, e.Name())
			a := podRequests{class: class, milli: MilliCPU(numberIn(dir, "cpu.shares"))}
			if t.Host.Version == 2 {
				a.milli = MilliCPU(sharesOf(numberIn(dir, "cpu.weight")))
				a.memory = int64(max(numberIn(dir, "memory.min"), numberIn(dir, "memory.low")))
			}
			t.requests[uid] = a
		}
	}
}

// numberIn reads a file with one number; if it cannot be read, the result is 0.
func numberIn(dir, file string) uint64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}
