package objectmeta

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDropDuplicateOwners(t *testing.T) {
	owners := []metav1.OwnerReference{
		{UID: "1", Name: "a"}, {UID: "1", Name: "a", Controller: new(false)}, {UID: "1", Name: "a", Controller: new(false)},
		{UID: "2", Name: "a", BlockOwnerDeletion: new(true)}, {UID: "2", Name: "a", Controller: new(true)}, {UID: "1", Name: "a"},
	}
	pod, warned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owners}}, 0
	DropDuplicateOwners(pod, func(...string) { warned++ })
	got := pod.OwnerReferences
	if len(got) != 4 || warned != 1 || *got[1].Controller || !*got[2].BlockOwnerDeletion || !*got[3].Controller {
		t.Error(got, warned)
	}
}

// TestManyOwnersAreNotComparedWithEachOther counts what is allocated: each comparison allocates.
func TestManyOwnersAreNotComparedWithEachOther(t *testing.T) {
	const n = 1000
	owners := make([]metav1.OwnerReference, n)
	for i := range owners {
		owners[i] = metav1.OwnerReference{UID: types.UID(strconv.Itoa(i)), Controller: new(true)}
	}
	if got := testing.AllocsPerRun(1, func() {
		DropDuplicateOwners(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: slices.Clone(owners)}}, nil)
	}); got > 10*n {
		t.Errorf("%v allocations for %d owners", got, n)
	}
}
