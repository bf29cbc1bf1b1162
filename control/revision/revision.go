// Package revision is what StatefulSets and DaemonSets share about their history: a ControllerRevision holds the Pod
// template of one moment, so that an older one can be rolled back to and Pods can be told apart by the template they
// come from. Everything here is a pure function.
package revision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"proa.dev/control/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/quantity"
)

// HashLabel holds the hash of a revision's data.
const HashLabel = "controller.kubernetes.io/hash"

// Patch is what a revision stores: the strategic merge patch that puts a template back. Equal templates give equal bytes.
func Patch(template *corev1.PodTemplateSpec) ([]byte, error) {
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode a pod template: %w", err)
	}
	fields := map[string]any{}
	if err := utiljson.Unmarshal(encoded, &fields); err != nil {
		return nil, fmt.Errorf("decode a pod template: %w", err)
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// Restore returns the owner as it is with the template of a revision. into is an empty object of the owner's type.
func Restore[T kind.Object](owner T, r *appsv1.ControllerRevision, into T) (T, error) {
	encoded, err := json.Marshal(owner)
	if err != nil {
		return into, fmt.Errorf("encode %s: %w", owner.GetName(), err)
	}
	patched, err := strategicpatch.StrategicMergePatch(encoded, r.Data.Raw, into)
	if err != nil {
		return into, fmt.Errorf("apply revision %s: %w", r.Name, err)
	}
	err = quantity.InJSON(patched, reflect.TypeOf(into))
	if err == nil {
		err = json.Unmarshal(patched, into)
	}
	if err != nil {
		return into, fmt.Errorf("apply revision %s: %w", r.Name, err)
	}
	return into, nil
}

// Hash is the short text that names data. A collision count makes another one for the same data.
func Hash(data []byte, collisions *int32) string {
	h := fnv.New32()
	h.Write(data)
	if collisions != nil {
		h.Write([]byte(strconv.Itoa(int(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// Name is the name of a revision. The owner's part gives way so that the whole stays a name.
func Name(owner, hash string) string {
	return owner[:min(len(owner), 223)] + "-" + hash
}

// New is a revision of an owner. What its labels must be depends on the owner's kind.
func New(owner kind.Object, gvk schema.GroupVersionKind, name string, labels map[string]string, patch []byte) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: name, Labels: labels, Annotations: maps.Clone(owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)},
		},
		Data: runtime.RawExtension{Raw: patch},
	}
}

// Labelled is a copy of labels with one more.
func Labelled(labels map[string]string, key, value string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	maps.Copy(out, labels)
	out[key] = value
	return out
}

// Sort orders revisions by number, and then by age and name.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortStableFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// Next is the number of a revision that comes after others.
func Next(revisions []*appsv1.ControllerRevision) int64 {
	var last int64
	for _, r := range revisions {
		last = max(last, r.Revision)
	}
	return last + 1
}

// Same says that a revision holds a patch.
func Same(r *appsv1.ControllerRevision, patch []byte) bool { return bytes.Equal(r.Data.Raw, patch) }

// Found is what a history says about a template.
type Found struct {
	// Current is the newest revision that holds it; nil if there is none.
	Current *appsv1.ControllerRevision
	// Number is the number that Current should have: another than it has after a rollback, when it must become the newest
	// again, and the one to give to a new revision when there is no Current.
	Number int64
	// Twins are older revisions that hold the same; Others hold something else.
	Twins, Others []*appsv1.ControllerRevision
}

// Find looks for a template in a history that is sorted.
func Find(sorted []*appsv1.ControllerRevision, patch []byte) Found {
	var f Found
	for _, r := range sorted {
		switch {
		case !Same(r, patch):
			f.Others = append(f.Others, r)
		case f.Current != nil:
			f.Twins = append(f.Twins, f.Current)
			f.Current = r
		default:
			f.Current = r
		}
	}
	f.Number = Next(f.Others)
	if f.Current != nil {
		f.Number = max(f.Number, f.Current.Revision)
	}
	return f
}

// Surplus chooses what to delete of a history that is sorted: the oldest that are not live, until only keep are left.
func Surplus(sorted []*appsv1.ControllerRevision, keep int, live func(*appsv1.ControllerRevision) bool) []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, r := range sorted {
		if len(out) >= len(sorted)-keep {
			break
		}
		if !live(r) {
			out = append(out, r)
		}
	}
	return out
}

// Matters is the When of a trigger on revisions. One that is new and has an owner wakes nobody: its owner has made it,
// and somebody else who makes one may want to see it before it is found to be a twin.
func Matters(old, now kind.Object) bool {
	if old == nil && metav1.GetControllerOfNoCopy(now) != nil {
		return false
	}
	return workload.Matters(old, now)
}
