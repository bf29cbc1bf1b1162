package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The annotations of ReplicaSets, the first of which a Deployment has too.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

// historyLength bounds the list of revisions that a set has been.
const historyLength = 2000

// own are the annotations that are not copied between a Deployment and its sets.
func own(annotation string) bool {
	switch annotation {
	case corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation, appsv1.DeprecatedRollbackTo:
		return true
	}
	return false
}

// revision is the number of a set: 0 without one, and false if it is not a number.
func revision(rs *appsv1.ReplicaSet) (int64, bool) {
	v, has := rs.Annotations[revisionAnnotation]
	if !has {
		return 0, true
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil
}

// lastTwo are the highest numbers among the sets.
func lastTwo(sets []*appsv1.ReplicaSet) (highest, second int64) {
	for _, rs := range sets {
		switch n, ok := revision(rs); {
		case !ok:
		case n >= highest:
			highest, second = n, highest
		case n > second:
			second = n
		}
	}
	return highest, second
}

// byRevision puts the lower revision first.
func byRevision(a, b *appsv1.ReplicaSet) int {
	ra, okA := revision(a)
	rb, okB := revision(b)
	if okA && okB {
		return cmp.Or(cmp.Compare(ra, rb), byAge(a, b))
	}
	return byAge(a, b)
}

// annotate gives what the annotations of the set of the present template should be: the Deployment's, and its revision,
// which is at least next. A revision that goes up is a rollback to the set, and the former number goes into the history.
// A revision that is no number is somebody else's, and then nothing is touched.
func annotate(d *appsv1.Deployment, rs *appsv1.ReplicaSet, next int64) map[string]string {
	out := maps.Clone(rs.Annotations)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range d.Annotations {
		if !own(k) {
			out[k] = v
		}
	}
	former, had := out[revisionAnnotation]
	n, err := strconv.ParseInt(former, 10, 64)
	if err != nil && former != "" {
		return rs.Annotations
	}
	if n >= next {
		return out
	}
	out[revisionAnnotation] = strconv.FormatInt(next, 10)
	if had {
		if history, fits := remember(out[historyAnnotation], former); fits {
			out[historyAnnotation] = history
		}
	}
	return out
}

// remember adds a revision to a history, and drops the oldest if it gets too long.
func remember(history, former string) (string, bool) {
	if history == "" || history[0] == ',' {
		return former, true
	}
	list := append(strings.Split(history, ","), former)
	length := len(history) + 1 + len(former)
	for length > historyLength && len(list) > 1 {
		length -= len(list[0]) + 1
		list = list[1:]
	}
	return strings.Join(list, ","), length <= historyLength
}

// sizes are the annotations by which a set knows what the Deployment wanted when it was last scaled.
func sizes(d *appsv1.Deployment) map[string]string {
	return map[string]string{desiredAnnotation: strconv.Itoa(int(wanted(d))), maxAnnotation: strconv.Itoa(int(most(d)))}
}

// number reads an annotation that is a number of Pods.
func number(rs *appsv1.ReplicaSet, annotation string) (int32, bool) {
	n, err := strconv.ParseUint(rs.Annotations[annotation], 10, 32)
	return int32(n), err == nil && n <= math.MaxInt32
}

// expendable are the old sets beyond the history that is to be kept, the lowest revisions first. A set that has Pods, or
// has not been looked at since it was changed, stays.
func expendable(d *appsv1.Deployment, old []*appsv1.ReplicaSet) (out []*appsv1.ReplicaSet) {
	limit := d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortStableFunc(alive, byRevision)
	for _, rs := range alive[:max(0, len(alive)-int(*limit))] {
		if rs.Status.Replicas == 0 && size(rs) == 0 && rs.Generation <= rs.Status.ObservedGeneration {
			out = append(out, rs)
		}
	}
	return out
}
