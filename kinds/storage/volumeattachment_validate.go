package storage

import (
	"math"
	"unicode/utf8"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/volumekind"
	"proa.dev/kinds/lib/check"
)

// The bounds of what a driver may report about an attachment.
const (
	maxAttachmentMetadata = 256 << 10
	maxVolumeError        = 1024
	maxDriverName         = 63
)

func validateVolumeAttachment(a, old *storagev1.VolumeAttachment) field.ErrorList {
	spec, status := field.NewPath("spec"), field.NewPath("status")
	errs := validateAttachmentSource(&a.Spec.Source, spec.Child("source"))
	errs = append(errs, check.DNSSubdomain(a.Spec.NodeName, spec.Child("nodeName"))...)
	size := 0
	for key, value := range a.Status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	errs = append(errs, validateVolumeError(a.Status.AttachError, status.Child("attachError"))...)
	errs = append(errs, validateVolumeError(a.Status.DetachError, status.Child("detachError"))...)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		errs = append(errs, check.DNSSubdomain(*name, field.NewPath("spec.source.persistentVolumeName"))...)
	}
	if old != nil && !equality.Semantic.DeepEqual(a.Spec, old.Spec) {
		if a.Spec.Attacher != old.Spec.Attacher {
			errs = append(check.CSIDriverName(a.Spec.Attacher, spec.Child("attacher")), errs...)
		}
		return append(errs, check.ImmutableError(spec))
	}
	return append(errs, validateAttacher(a.Spec.Attacher, spec.Child("attacher"))...)
}

func validateAttacher(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := check.Messages(name, path, content.IsDNS1123SubdomainCaseless(name))
	if utf8.RuneCountInString(name) > maxDriverName {
		errs = append(errs, field.TooLongCharacters(path, name, maxDriverName))
	}
	return errs
}

func validateAttachmentSource(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, one)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, one)}
	case s.InlineVolumeSpec != nil:
		return volumekind.ValidatePersistentVolumeSpec(s.InlineVolumeSpec, "", true, false, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		return field.ErrorList{field.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")}
	}
	return nil
}

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxVolumeError {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxVolumeError))
	}
	if c := e.ErrorCode; c != nil && *c < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *c, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
