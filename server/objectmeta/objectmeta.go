// Package objectmeta sets the metadata that the server decides about: the identity of an object, generated names, owner
// references, and the times in managedFields.
package objectmeta

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
)

// AssignIdentity gives a new object its UID and creation time, and clears the other fields that only the server sets.
func AssignIdentity(obj kind.Object) {
	obj.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	obj.SetUID(types.UID(uuid.NewString()))
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// ClearIdentity clears the fields that only the server sets.
func ClearIdentity(obj kind.Object) {
	AssignIdentity(obj)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
}

// GenerateName completes a prefix with five random characters, without vowels, so that they spell no words.
func GenerateName(base string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	const maxBase = 63 - 5
	if len(base) > maxBase {
		base = base[:maxBase]
	}
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return base + string(b)
}

// KeepIdentity sets the fields of an object that a client may leave out of an update and cannot change by one.
func KeepIdentity(obj, old kind.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if old.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	}
	if old.GetDeletionGracePeriodSeconds() != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
}

// ClearManagedTimes removes the times from new managedFields entries of a projection such as scale, where the API shows
// none.
func ClearManagedTimes(sub string, obj, old kind.Object) {
	entries := obj.GetManagedFields()
	for i := range entries {
		e := &entries[i]
		if e.Subresource != sub {
			continue
		}
		e.Time = nil
		for _, before := range old.GetManagedFields() {
			if before.Subresource == sub && before.Manager == e.Manager && before.Operation == e.Operation &&
				before.APIVersion == e.APIVersion {
				e.Time = before.Time
			}
		}
	}
	obj.SetManagedFields(entries)
}

// valueOf returns what a pointer points at, or nil.
func valueOf(p *bool) any {
	if p == nil {
		return nil
	}
	return *p
}

// DropDuplicateOwners removes duplicate owner references, with a warning.
func DropDuplicateOwners(obj kind.Object, warn func(texts ...string)) {
	refs := obj.GetOwnerReferences()
	// There may be very many, so they are not compared with each other.
	type refKey struct {
		ref                metav1.OwnerReference // without its pointers
		controller, blocks any
	}
	seen := make(map[refKey]bool, len(refs))
	var kept []metav1.OwnerReference
	var duplicates []string
	for _, ref := range refs {
		key := refKey{ref, valueOf(ref.Controller), valueOf(ref.BlockOwnerDeletion)}
		key.ref.Controller, key.ref.BlockOwnerDeletion = nil, nil
		if seen[key] {
			duplicates = append(duplicates, string(ref.UID))
			continue
		}
		seen[key] = true
		kept = append(kept, ref)
	}
	if duplicates == nil {
		return
	}
	obj.SetOwnerReferences(kept)
	warn(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
		"please fix your requests; duplicate UID(s) observed: " + strings.Join(duplicates, ", "))
}
