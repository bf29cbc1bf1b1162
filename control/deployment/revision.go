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

// The annotations of ReplicaSets. A Deployment has the first one too.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

// historyLength bounds the annotation with the earlier revisions of a set, in bytes.
const historyLength = 2000

// isOwnAnnotation reports whether an annotation is not copied between a Deployment and its sets.
func isOwnAnnotation(annotation string) bool {
	switch annotation {
	case corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation,
		appsv1.DeprecatedRollbackTo:
		return true
	}
	return false
}

// revision returns the revision of a set: 0 if it has none, and false if it is not a number.
func revision(rs *appsv1.ReplicaSet) (int64, bool) {
	v, has := rs.Annotations[revisionAnnotation]
	if !has {
		return 0, true
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil
}

// lastTwo returns the two highest revisions of the sets.
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

// compareRevision puts the lower revision first.
func compareRevision(a, b *appsv1.ReplicaSet) int {
	ra, okA := revision(a)
	rb, okB := revision(b)
	if okA && okB {
		return cmp.Or(cmp.Compare(ra, rb), compareAge(a, b))
	}
	return compareAge(a, b)
}

// annotate returns the annotations that the set with the current template should have: those of the Deployment, and a
// revision of at least next. If the revision increases, the set is rolled back to, and the former revision is added to the
// history. If the revision is not a number, another program manages it, and nothing is changed.
func annotate(d *appsv1.Deployment, rs *appsv1.ReplicaSet, next int64) map[string]string {
	out := maps.Clone(rs.Annotations)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range d.Annotations {
		if !isOwnAnnotation(k) {
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
		if history, fits := appendRevision(out[historyAnnotation], former); fits {
			out[historyAnnotation] = history
		}
	}
	return out
}

// appendRevision appends a revision to a history, and drops the oldest ones if it gets too long. It returns false if it does not
// fit even so.
func appendRevision(history, former string) (string, bool) {
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

// sizeAnnotations returns the annotations that record the Deployment's size when a set was last scaled.
func sizeAnnotations(d *appsv1.Deployment) map[string]string {
	return map[string]string{desiredAnnotation: strconv.Itoa(int(replicas(d))), maxAnnotation: strconv.Itoa(int(maxPods(d)))}
}

// sizeAnnotation parses an annotation that is a number of Pods.
func sizeAnnotation(rs *appsv1.ReplicaSet, annotation string) (int32, bool) {
	n, err := strconv.ParseUint(rs.Annotations[annotation], 10, 32)
	return int32(n), err == nil && n <= math.MaxInt32
}

// setsToDelete returns the old sets beyond the revision history limit, the lowest revisions first. Sets that have Pods, or whose
// controller has not observed their latest change, are kept.
func setsToDelete(d *appsv1.Deployment, old []*appsv1.ReplicaSet) (out []*appsv1.ReplicaSet) {
	limit := d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortStableFunc(alive, compareRevision)
	for _, rs := range alive[:max(0, len(alive)-int(*limit))] {
		if rs.Status.Replicas == 0 && size(rs) == 0 && rs.Generation <= rs.Status.ObservedGeneration {
			out = append(out, rs)
		}
	}
	return out
}
