package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// roll goes one step of a rolling update: the new set grows as far as there is room, else the old ones shrink as far as
// enough Pods are available without them.
func (l *look) roll() error {
	if l.fresh == nil {
		if err := l.begin(); err != nil {
			return err
		}
	}
	if !l.scale(l.fresh, l.room(l.fresh)) && !l.shrink() && complete(l.d, &l.d.Status) {
		l.plan.remove = expendable(l.d, l.old)
	}
	l.progress()
	return nil
}

// room is how many Pods the set of the present template may have now.
func (l *look) room(fresh *appsv1.ReplicaSet) int32 {
	want := wanted(l.d)
	if !isRolling(l.d) || size(fresh) > want {
		return want
	}
	now := sum(l.old, size) + size(fresh)
	return min(want, size(fresh)+max(0, most(l.d)-now))
}

// shrink takes Pods from the old sets, first those that are not available, which are missed by nobody. Pods of the new
// set that are not available yet count against it, else a new template that never gets ready would eat up the old Pods.
func (l *look) shrink() bool {
	old := active(l.old)
	spare := sum(l.all(), size) - least(l.d) - (size(l.fresh) - available(l.fresh))
	if len(old) == 0 || spare <= 0 {
		return false
	}
	took := int32(0)
	for i, rs := range old {
		if n := min(spare-took, size(rs)-available(rs)); n > 0 {
			old[i] = l.edit(rs)
			l.scale(old[i], size(rs)-n)
			took += n
		}
	}
	spare = sum(old, available) + available(l.fresh) - least(l.d)
	for _, rs := range old {
		if n := min(spare, size(rs)); n > 0 {
			l.scale(rs, size(rs)-n)
			spare, took = spare-n, took+n
		}
	}
	return took > 0
}

// recreate lets all old Pods end before there are new ones.
func (l *look) recreate(busy map[types.UID]bool) error {
	down := false
	for _, rs := range slices.Clone(l.old) {
		down = l.scale(rs, 0) || down
	}
	waits := slices.ContainsFunc(l.old, func(rs *appsv1.ReplicaSet) bool { return rs.Status.Replicas > 0 || busy[rs.UID] })
	if down || waits {
		l.progress()
		return nil
	}
	if l.fresh == nil {
		if err := l.begin(); err != nil {
			return err
		}
	}
	l.scale(l.fresh, wanted(l.d))
	if complete(l.d, &l.d.Status) {
		l.plan.remove = expendable(l.d, l.old)
	}
	l.progress()
	return nil
}

// resized says that the Deployment was scaled since its sets were.
func (l *look) resized() bool {
	return slices.ContainsFunc(active(l.all()), func(rs *appsv1.ReplicaSet) bool {
		n, ok := number(rs, desiredAnnotation)
		return ok && n != wanted(l.d)
	})
}

// resize scales without rolling: the one set that has Pods gets them all; several share in proportion, so that scaling in
// the middle of a rollout does not hasten it.
func (l *look) resize() {
	want := wanted(l.d)
	if rs := l.only(); rs != nil {
		l.note(rs)
		l.scale(l.current(rs), want)
		return
	}
	if l.saturated() {
		for _, rs := range active(l.old) {
			l.scale(rs, 0)
		}
		return
	}
	if isRolling(l.d) {
		l.share()
	}
}

// only is the one active set, or the newest when none is active; nil when several are.
func (l *look) only() *appsv1.ReplicaSet {
	busy := active(l.all())
	switch {
	case len(busy) == 1:
		return busy[0]
	case len(busy) > 1:
		return nil
	case l.fresh != nil || len(l.old) == 0:
		return l.fresh
	}
	return l.old[len(l.old)-1]
}

// note brings the sizes that an active set remembers up to date, without which it would look as if the Deployment were
// being scaled for ever.
func (l *look) note(rs *appsv1.ReplicaSet) {
	next := maps.Clone(rs.Annotations)
	if next == nil {
		next = map[string]string{}
	}
	maps.Copy(next, sizes(l.d))
	if size(rs) > 0 && !maps.Equal(next, rs.Annotations) {
		l.edit(rs).Annotations = next
	}
}

// current is the copy of a set that is being changed, if there is one.
func (l *look) current(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	for _, changed := range l.plan.update {
		if changed.Name == rs.Name {
			return changed
		}
	}
	return rs
}

// saturated says that the set of the present template is all that is wanted.
func (l *look) saturated() bool {
	if l.fresh == nil {
		return false
	}
	desired, ok := number(l.fresh, desiredAnnotation)
	want := wanted(l.d)
	return ok && desired == want && size(l.fresh) == want && available(l.fresh) == want
}

// share gives the active sets their part of what is to be added or taken, the largest first. What is left over by
// rounding goes to the largest. Of equals the newest grows first, and the oldest shrinks first.
func (l *look) share() {
	sets := active(l.all())
	add := -sum(sets, size)
	if wanted(l.d) > 0 {
		add += most(l.d)
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := byAge(a, b)
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
			part = min(l.part(rs), add-added)
		case add < 0:
			part = max(l.part(rs), add-added)
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
		l.note(rs)
		l.scale(l.current(rs), next[i])
	}
}

// part is by how much a set would grow to stay in proportion.
func (l *look) part(rs *appsv1.ReplicaSet) int32 {
	if wanted(l.d) == 0 {
		return -size(rs)
	}
	before, ok := number(rs, maxAnnotation)
	if !ok || before == 0 { // somebody took it away; what the Deployment has is near enough
		before = l.d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(size(rs))*float64(most(l.d))/float64(before))) - size(rs)
}
