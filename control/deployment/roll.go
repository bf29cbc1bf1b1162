package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// roll makes one step of a rolling update: it scales up the new set as far as maxSurge allows, or else scales down the old
// ones as far as enough Pods stay available.
func (l *rollout) roll() error {
	if l.currentSet == nil {
		if err := l.createSet(); err != nil {
			return err
		}
	}
	if !l.scale(l.currentSet, l.currentSetSize(l.currentSet)) && !l.scaleDownOld() && isComplete(l.d, &l.d.Status) {
		l.plan.remove = setsToDelete(l.d, l.old)
	}
	l.updateProgress()
	return nil
}

// currentSetSize returns the number of Pods that the set with the current template may have now.
func (l *rollout) currentSetSize(current *appsv1.ReplicaSet) int32 {
	want := replicas(l.d)
	if !isRolling(l.d) || size(current) > want {
		return want
	}
	now := sum(l.old, size) + size(current)
	return min(want, size(current)+max(0, maxPods(l.d)-now))
}

// scaleDownOld scales down the old sets, first by their unavailable Pods. Pods of the new set that are not available yet are not
// counted, so that a template which never becomes ready does not replace the old Pods. It reports whether it changed a set.
func (l *rollout) scaleDownOld() bool {
	old := activeSets(l.old)
	spare := sum(l.all(), size) - minAvailable(l.d) - (size(l.currentSet) - keptAvailable(l.currentSet))
	if len(old) == 0 || spare <= 0 {
		return false
	}
	removed := int32(0)
	for i, rs := range old {
		if n := min(spare-removed, size(rs)-keptAvailable(rs)); n > 0 {
			old[i] = l.edit(rs)
			l.scale(old[i], size(rs)-n)
			removed += n
		}
	}
	spare = sum(old, keptAvailable) + keptAvailable(l.currentSet) - minAvailable(l.d)
	for _, rs := range old {
		if n := min(spare, size(rs)); n > 0 {
			l.scale(rs, size(rs)-n)
			spare, removed = spare-n, removed+n
		}
	}
	return removed > 0
}

// recreate scales the old sets to zero, and scales up the new set when all old Pods have ended.
func (l *rollout) recreate(busy map[types.UID]bool) error {
	down := false
	for _, rs := range slices.Clone(l.old) {
		down = l.scale(rs, 0) || down
	}
	waits := slices.ContainsFunc(l.old, func(rs *appsv1.ReplicaSet) bool { return rs.Status.Replicas > 0 || busy[rs.UID] })
	if down || waits {
		l.updateProgress()
		return nil
	}
	if l.currentSet == nil {
		if err := l.createSet(); err != nil {
			return err
		}
	}
	l.scale(l.currentSet, replicas(l.d))
	if isComplete(l.d, &l.d.Status) {
		l.plan.remove = setsToDelete(l.d, l.old)
	}
	l.updateProgress()
	return nil
}

// wasScaled reports whether the Deployment was scaled since its sets were last scaled.
func (l *rollout) wasScaled() bool {
	return slices.ContainsFunc(activeSets(l.all()), func(rs *appsv1.ReplicaSet) bool {
		n, ok := sizeAnnotation(rs, desiredAnnotation)
		return ok && n != replicas(l.d)
	})
}

// scaleProportionally scales the sets without continuing the rollout: a single active set gets all Pods; several are scaled
// proportionally.
func (l *rollout) scaleProportionally() {
	want := replicas(l.d)
	if rs := l.onlyActiveSet(); rs != nil {
		l.annotateSizes(rs)
		l.scale(l.editedCopy(rs), want)
		return
	}
	if l.isSaturated() {
		for _, rs := range activeSets(l.old) {
			l.scale(rs, 0)
		}
		return
	}
	if isRolling(l.d) {
		l.distribute()
	}
}

// onlyActiveSet returns the active set if there is one, or the newest set if none is active; nil if several are.
func (l *rollout) onlyActiveSet() *appsv1.ReplicaSet {
	busy := activeSets(l.all())
	switch {
	case len(busy) == 1:
		return busy[0]
	case len(busy) > 1:
		return nil
	case l.currentSet != nil || len(l.old) == 0:
		return l.currentSet
	}
	return l.old[len(l.old)-1]
}

// annotateSizes updates the size annotations of an active set. Without that, wasScaled would report a change for ever.
func (l *rollout) annotateSizes(rs *appsv1.ReplicaSet) {
	next := maps.Clone(rs.Annotations)
	if next == nil {
		next = map[string]string{}
	}
	maps.Copy(next, sizeAnnotations(l.d))
	if size(rs) > 0 && !maps.Equal(next, rs.Annotations) {
		l.edit(rs).Annotations = next
	}
}

// editedCopy returns the copy of a set that edit has made, if there is one, or else the set itself.
func (l *rollout) editedCopy(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	for _, changed := range l.plan.update {
		if changed.Name == rs.Name {
			return changed
		}
	}
	return rs
}

// isSaturated reports whether the set with the current template has all wanted Pods, and all are available.
func (l *rollout) isSaturated() bool {
	if l.currentSet == nil {
		return false
	}
	desired, ok := sizeAnnotation(l.currentSet, desiredAnnotation)
	want := replicas(l.d)
	return ok && desired == want && size(l.currentSet) == want && available(l.currentSet) == want
}

// distribute distributes the Pods to be added or removed over the active sets in proportion to their sizes, the largest first. The
// remainder of rounding goes to the largest set. Of equal sets the newest grows first, and the oldest shrinks first.
func (l *rollout) distribute() {
	sets := activeSets(l.all())
	add := -sum(sets, size)
	if replicas(l.d) > 0 {
		add += maxPods(l.d)
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := compareAge(a, b)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(size(b), size(a)), age)
	})
	next, added := make([]int32, len(sets)), int32(0)
	for i, rs := range sets {
		part := int32(0)
		switch {
		case add > 0:
			part = min(l.proportionalChange(rs), add-added)
		case add < 0:
			part = max(l.proportionalChange(rs), add-added)
		}
		if added == add {
			part = 0
		}
		next[i] = size(rs) + part
		added += part
	}
	for i, rs := range sets {
		if i == 0 {
			next[i] = max(0, next[i]+add-added)
		}
		l.annotateSizes(rs)
		l.scale(l.editedCopy(rs), next[i])
	}
}

// proportionalChange returns by how much a set changes to stay in proportion.
func (l *rollout) proportionalChange(rs *appsv1.ReplicaSet) int32 {
	if replicas(l.d) == 0 {
		return -size(rs)
	}
	before, ok := sizeAnnotation(rs, maxAnnotation)
	if !ok || before == 0 { // the annotation was removed; the status is a good estimate
		before = l.d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(size(rs))*float64(maxPods(l.d))/float64(before))) - size(rs)
}
