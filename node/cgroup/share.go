package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// count brings the tiers up to date with a Pod.
func (t *Tree) count(p *corev1.Pod) error {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	now := ask{class: Class(p), milli: requests.Cpu().MilliValue(), memory: requests.Memory().Value()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.asks[p.UID]; ok && old == now {
		return nil
	}
	t.asks[p.UID] = now
	return t.share()
}

// share gives the tiers what their Pods ask for.
func (t *Tree) share() error {
	if t.Policy.Reserve && t.Host.Version == 2 {
		// What is protected below must be protected above.
		if err := t.set(t.all, t.limitsOfAll()); err != nil {
			return err
		}
	}
	return t.set(t.tier(corev1.PodQOSBurstable), t.burstable())
}

// sum adds up what the Pods of a class ask for.
func (t *Tree) sum(class corev1.PodQOSClass) (out ask) {
	for _, a := range t.asks {
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
	l := Limits{Shares: new(Shares(sum.milli)), Huge: map[string]int64{}, Unified: map[string]string{"memory.low": strconv.FormatInt(sum.memory, 10)}}
	for _, size := range t.Host.Pages {
		l.Huge[size] = unboundHuge
	}
	return l
}

// recall reads from their groups what the Pods of an earlier agent asked for. It need not be exact: Ensure says it again.
func (t *Tree) recall() {
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable} {
		tier := t.Host.dir("cpu", t.tier(class).path(t.Driver))
		entries, err := os.ReadDir(tier)
		if err != nil {
			continue
		}
		for _, e := range entries {
			uid, ok := uidOf(t.Driver, e.Name())
			if _, known := t.asks[uid]; !ok || known {
				continue
			}
			dir := filepath.Join(tier, e.Name())
			a := ask{class: class, milli: Milli(numberIn(dir, "cpu.shares"))}
			if t.Host.Version == 2 {
				a.milli = Milli(sharesOf(numberIn(dir, "cpu.weight")))
				a.memory = int64(max(numberIn(dir, "memory.min"), numberIn(dir, "memory.low")))
			}
			t.asks[uid] = a
		}
	}
}

// numberIn reads a file of one number; what cannot be read is 0.
func numberIn(dir, file string) uint64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}
