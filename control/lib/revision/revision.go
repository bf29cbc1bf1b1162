// Package revision is what the controllers of StatefulSets and DaemonSets share about their revision history. A
// ControllerRevision holds a Pod template, so that it can be rolled back to, and so that Pods can be told apart by the
// template they were created from. All functions are pure.
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

	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/quantity"
)

// HashLabel holds the hash of a revision's data.
const HashLabel = "controller.kubernetes.io/hash"

// Patch returns the data of a revision: the strategic merge patch that restores a template. Equal templates give equal bytes.
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

// Restore returns a copy of the owner with the template of a revision. into is an empty object of the owner's type.
func Restore[T kind.Object](owner T, r *appsv1.ControllerRevision, into T) (T, error) {
	encoded, err := json.Marshal(owner)
	if err != nil {
		return into, fmt.Errorf("encode %s: %w", owner.GetName(), err)
	}
	patched, err := strategicpatch.StrategicMergePatch(encoded, r.Data.Raw, into)
	if err != nil {
		return into, fmt.Errorf("apply revision %s: %w", r.Name, err)
	}
	err = quantity.CheckJSON(patched, reflect.TypeOf(into))
	if err == nil {
		err = json.Unmarshal(patched, into)
	}
	if err != nil {
		return into, fmt.Errorf("apply revision %s: %w", r.Name, err)
	}
	return into, nil
}

// Hash returns the hash of a revision's data for its name. A collision count gives another hash for the same data.
func Hash(data []byte, collisions *int32) string {
	h := fnv.New32()
	h.Write(data)
	if collisions != nil {
		h.Write([]byte(strconv.Itoa(int(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// Name returns the name of a revision. The owner's name is shortened if the result would be too long.
func Name(owner, hash string) string {
	return owner[:min(len(owner), 223)] + "-" + hash
}

// New returns a revision of an owner. Its labels depend on the owner's kind.
func New(owner kind.Object, gvk schema.GroupVersionKind, name string, labels map[string]string, patch []byte) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: name, Labels: labels, Annotations: maps.Clone(owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)},
		},
		Data: runtime.RawExtension{Raw: patch},
	}
}

// Of converts the result of a request to a ControllerRevision, as in Of(c.Create(...)).
func Of(o kind.Object, err error) (*appsv1.ControllerRevision, error) {
	r, _ := o.(*appsv1.ControllerRevision)
	return r, err
}

// WithLabel returns a copy of labels with one more.
func WithLabel(labels map[string]string, key, value string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	maps.Copy(out, labels)
	out[key] = value
	return out
}

// Sort orders revisions by number, and then by age and name.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortStableFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name))
	})
}

// Next returns the number of a revision that is newer than all others.
func Next(revisions []*appsv1.ControllerRevision) int64 {
	var last int64
	for _, r := range revisions {
		last = max(last, r.Revision)
	}
	return last + 1
}

// HasPatch reports whether the data of a revision is a patch.
func HasPatch(r *appsv1.ControllerRevision, patch []byte) bool { return bytes.Equal(r.Data.Raw, patch) }

// Found is the result of Find.
type Found struct {
	// Current is the newest revision with the template; nil if there is none.
	Current *appsv1.ControllerRevision
	// Number is the number that Current should have. After a rollback it differs from the number that Current has, because
	// Current must become the newest revision again. If there is no Current, it is the number of the revision to create.
	Number int64
	// Twins are older revisions with the same template; Others have other templates.
	Twins, Others []*appsv1.ControllerRevision
}

// Find finds the revisions of a template, given as a patch, in a sorted history.
func Find(sorted []*appsv1.ControllerRevision, patch []byte) Found {
	var f Found
	for _, r := range sorted {
		switch {
		case !HasPatch(r, patch):
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

// ToDelete returns the revisions to delete of a sorted history: the oldest that are not live, until only keep are left.
func ToDelete(sorted []*appsv1.ControllerRevision, keep int, live func(*appsv1.ControllerRevision) bool) []*appsv1.ControllerRevision {
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

// WakesOwners is the When of a trigger on revisions. A new revision with an owner wakes nothing: its owner's controller has
// created it, and a revision that a user created is not deleted as a twin at once.
func WakesOwners(old, now kind.Object) bool {
	if old == nil && metav1.GetControllerOfNoCopy(now) != nil {
		return false
	}
	return workload.WakesOwners(old, now)
}
