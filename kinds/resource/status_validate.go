package resource

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/lib/check"
)

// device identifies a device, or a share of one. Errors quote it with these field names.
type device struct{ Driver, Pool, Device, ShareID string }

func allocatedDevices(c *resourcev1.ResourceClaim) []device {
	if c.Status.Allocation == nil {
		return nil
	}
	var devices []device
	for _, r := range c.Status.Allocation.Devices.Results {
		d := device{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
		if r.ShareID != nil {
			d.ShareID = string(*r.ShareID)
		}
		devices = append(devices, d)
	}
	return devices
}

func reportedDevice(s *resourcev1.AllocatedDeviceStatus) device {
	d := device{Driver: s.Driver, Pool: s.Pool, Device: s.Device}
	if s.ShareID != nil {
		d.ShareID = *s.ShareID
	}
	return d
}

// prepareClaimStatus drops the status of devices that the claim no longer has, and the fields of disabled features.
func prepareClaimStatus(c, old *resourcev1.ResourceClaim) {
	held, was := allocatedDevices(c), allocatedDevices(old)
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
		d := reportedDevice(&s)
		return slices.Contains(was, d) && !slices.Contains(held, d)
	})
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}

func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	status := field.NewPath("status")
	s := &c.Status
	errs := validateUnique(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, status.Child("reservedFor"),
		func(r *resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID }, validateConsumer)
	held := allocatedDevices(c)
	errs = append(errs, validateUnique(s.Devices, -1, status.Child("devices"), reportedDevice,
		func(d *resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
			return validateReport(d, held, at)
		})...)
	if len(s.ReservedFor) > 0 {
		switch added := slices.ContainsFunc(s.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
			return !slices.Contains(old.Status.ReservedFor, r)
		}); {
		case s.Allocation == nil:
			errs = append(errs, field.Forbidden(status.Child("reservedFor"), "may not be specified when `allocated` is not set"))
		case added && c.DeletionTimestamp != nil:
			errs = append(errs, field.Forbidden(status.Child("reservedFor"), "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
		}
	}
	var more field.ErrorList
	switch {
	case s.Allocation == nil:
	case old.Status.Allocation == nil:
		more = declarativeLast(validateAllocation(s.Allocation, requestNames(&c.Spec.Devices), status.Child("allocation")))
	case !equality.Semantic.DeepEqual(s.Allocation, old.Status.Allocation):
		more = markDeclarative(field.ErrorList{check.ImmutableError(status.Child("allocation"))})
	}
	// Errors of declarative validation about the allocation come first.
	errs = declarativeLast(errs)
	split := slices.IndexFunc(errs, func(e *field.Error) bool { return e.CoveredByDeclarative })
	if split < 0 {
		split = len(errs)
	}
	return declarativeLast(slices.Concat(errs[:split], more, errs[split:]))
}

func validateConsumer(r *resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct{ value, name string }{{r.Resource, "resource"}, {r.Name, "name"}, {string(r.UID), "uid"}} {
		if f.value == "" {
			errs = append(errs, field.Required(path.Child(f.name), ""))
		}
	}
	return errs
}

func validateAllocation(a *resourcev1.AllocationResult, names requests, path *field.Path) field.ErrorList {
	at := path.Child("devices")
	errs := validateEach(a.Devices.Results, resourcev1.AllocationResultsMaxSize, at.Child("results"),
		func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
			errs := names.validateRef(&r.Request, at.Child("request"))
			errs = append(errs, markDeclarative(validateNamedDriver(r.Driver, at.Child("driver")))...)
			errs = append(errs, markDeclarative(validateDeclaredPool(r.Pool, at.Child("pool")))...)
			errs = append(errs, check.DNSLabel(r.Device, at.Child("device"))...)
			errs = append(errs, validateBinding(r.BindingConditions, r.BindingFailureConditions, at)...)
			errs = append(errs, validateEach(r.Tolerations, resourcev1.DeviceTolerationsMaxLength, at.Child("tolerations"),
				validateToleration)...)
			if r.ShareID != nil {
				errs = append(errs, markDeclarative(validateUID(string(*r.ShareID), at.Child("shareID")))...)
			}
			return errs
		})
	errs = append(errs, validateEach(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
			errs := markDeclarative(check.OneOfOrRequired(c.Source, at.Child("source"), resourcev1.AllocationConfigSourceClaim,
				resourcev1.AllocationConfigSourceClass))
			errs = append(errs, validateUnique(c.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), deref,
				names.validateRef)...)
			return append(errs, validateConfig(&c.DeviceConfiguration, false, at)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, podplacement.ValidateNodeSelector(a.NodeSelector, false, path.Child("nodeSelector"))...)
	}
	return errs
}

func validateReport(s *resourcev1.AllocatedDeviceStatus, held []device, path *field.Path) field.ErrorList {
	errs := check.CSIDriverName(s.Driver, path.Child("driver"))
	errs = append(errs, validatePool(s.Pool, path.Child("pool"))...)
	errs = append(errs, check.DNSLabel(s.Device, path.Child("device"))...)
	if s.ShareID != nil {
		errs = append(errs, markDeclarative(validateUID(*s.ShareID, path.Child("shareID")))...)
	}
	if d := reportedDevice(s); !slices.Contains(held, d) {
		errs = append(errs, field.Invalid(path, d, "must be an allocated device in the claim"))
	}
	if n := len(s.Conditions); n > resourcev1.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(path.Child("conditions"), n, resourcev1.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))...)
	if s.Data != nil && len(s.Data.Raw) > 0 {
		errs = append(errs, validateRaw(*s.Data, false, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	if n := s.NetworkData; n != nil {
		at := path.Child("networkData")
		if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
			errs = append(errs, markDeclarative(field.ErrorList{field.TooLong(at.Child("interfaceName"), "",
				resourcev1.NetworkDeviceDataInterfaceNameMaxLength)})...)
		}
		if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
			errs = append(errs, markDeclarative(field.ErrorList{field.TooLong(at.Child("hardwareAddress"), "",
				resourcev1.NetworkDeviceDataHardwareAddressMaxLength)})...)
		}
		errs = append(errs, validateUnique(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, at.Child("ips"), deref,
			func(ip *string, at *field.Path) field.ErrorList {
				return validation.IsValidInterfaceAddress(at, *ip)
			})...)
	}
	return errs
}

// validateBinding requires both lists of conditions or neither, without duplicates.
func validateBinding(conditions, failures []string, path *field.Path) field.ErrorList {
	label := func(s *string, at *field.Path) field.ErrorList { return metav1validation.ValidateLabelName(*s, at) }
	good, bad := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	errs := validateEach(conditions, resourcev1.BindingConditionsMaxSize, good, label)
	errs = append(errs, validateEach(failures, resourcev1.BindingFailureConditionsMaxSize, bad, label)...)
	for i, c := range conditions {
		if slices.Contains(conditions[:i], c) {
			errs = append(errs, field.Duplicate(good.Index(i), c))
		}
	}
	for i, c := range failures {
		if slices.Contains(failures[:i], c) {
			errs = append(errs, field.Duplicate(bad.Index(i), c))
		}
		if slices.Contains(conditions, c) {
			errs = append(errs, field.Invalid(bad.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		errs = append(errs, field.Invalid(good, conditions, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failures) == 0 && len(conditions) > 0 {
		errs = append(errs, field.Invalid(bad, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}
