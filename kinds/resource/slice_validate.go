package resource

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/lib/check"
)

func validateSlice(s, old *resourcev1.ResourceSlice) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	errs := check.CSIDriverName(spec.Driver, path.Child("driver"))
	errs = append(errs, validatePool(spec.Pool.Name, path.Child("pool", "name"))...)
	if n := spec.Pool.ResourceSliceCount; n <= 0 {
		errs = append(errs, field.Invalid(path.Child("pool", "resourceSliceCount"), n, "must be greater than zero"))
	}
	if n := spec.Pool.Generation; n < 0 {
		errs = append(errs, field.Invalid(path.Child("pool", "generation"), n, "must be greater than or equal to zero"))
	}
	var was map[string]*resourcev1.Device
	if old != nil {
		errs = append(errs, check.Immutable(spec.Pool.Name, old.Spec.Pool.Name, path.Child("pool", "name"))...)
		errs = append(errs, check.Immutable(spec.Driver, old.Spec.Driver, path.Child("driver"))...)
		errs = append(errs, check.Immutable(spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))...)
		was = map[string]*resourcev1.Device{}
		for i := range old.Spec.Devices {
			was[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	errs = append(errs, validateSliceNodes(spec, path)...)
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	most := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(spec.Devices, isAdvanced) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	errs = append(errs, validateDistinct(spec.Devices, most, path.Child("devices"), func(d *resourcev1.Device) string { return d.Name },
		func(d *resourcev1.Device, at *field.Path) field.ErrorList {
			return validateDevice(d, was[d.Name], spec.PerDeviceNodeSelection != nil && *spec.PerDeviceNodeSelection, at)
		})...)
	errs = append(errs, validateUnique(spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, path.Child("sharedCounters"),
		func(c *resourcev1.CounterSet) string { return c.Name },
		func(c *resourcev1.CounterSet, at *field.Path) field.ErrorList {
			return validateCounters(c.Name, c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at, "name")
		})...)
	return declarativeLast(errs)
}

// isAdvanced reports whether a device uses features that make it large, so that a slice may have fewer devices.
func isAdvanced(d resourcev1.Device) bool {
	for _, a := range d.Attributes {
		if a.BoolValues != nil || a.IntValues != nil || a.StringValues != nil || a.VersionValues != nil {
			return true
		}
	}
	return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0
}

func validateSliceNodes(s *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	const unsetOrTrue = "must be either unset or set to true"
	var errs field.ErrorList
	var set []string
	if n := s.NodeName; n != nil {
		if *n == "" {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *n, "must be either unset or set to a non-empty string"))
		} else {
			set = append(set, "`nodeName`")
			errs = append(errs, check.DNSSubdomain(*n, path.Child("nodeName"))...)
		}
	}
	if n := s.NodeSelector; n != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, podplacement.ValidateNodeSelector(n, false, path.Child("nodeSelector"))...)
		if len(n.NodeSelectorTerms) != 1 {
			errs = append(errs, field.Invalid(path.Child("nodeSelector", "nodeSelectorTerms"), check.GoFields(n.NodeSelectorTerms),
				"must have exactly one node selector term"))
		}
	}
	for _, f := range []struct {
		value *bool
		name  string
	}{{s.AllNodes, "allNodes"}, {s.PerDeviceNodeSelection, "perDeviceNodeSelection"}} {
		switch {
		case f.value == nil:
		case *f.value:
			set = append(set, "`"+f.name+"`")
		default:
			errs = append(errs, field.Invalid(path.Child(f.name), false, unsetOrTrue))
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch len(set) {
	case 0:
		errs = append(errs, field.Required(path, one))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, "{"+strings.Join(set, ", ")+"}", one+", but multiple fields are set"))
	}
	return errs
}

func validateDevice(d, old *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	errs := check.DNSLabel(d.Name, path.Child("name"))
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(path, n,
			fmt.Sprintf("the total number of attributes and capacities must not exceed %d",
				resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	if n := countValues(d); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		errs = append(errs, field.Invalid(path, n,
			fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice)))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		errs = append(errs, validateQualified(string(name), path.Child("attributes"))...)
		errs = append(errs, validateAttribute(d.Attributes[name], path.Child("attributes").Key(shortenName(string(name))))...)
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
		for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
			errs = append(errs, validateQualified(string(name), path.Child("capacity"))...)
			errs = append(errs, validateCapacity(d.Capacity[name], shared, path.Child("capacity").Key(shortenName(string(name))))...)
		}
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, validateEach(d.Taints, resourcev1.DeviceTaintsMaxLength, path.Child("taints"),
			func(t *resourcev1.DeviceTaint, at *field.Path) field.ErrorList {
				return validateTaint(t, nil, at)
			})...)
	}
	errs = append(errs, validateUnique(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		path.Child("consumesCounters"),
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return validateCounters(c.CounterSet, c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at,
				"counterSet")
		})...)
	errs = append(errs, validateDeviceNodes(d, perDevice, path)...)
	return append(errs, validateBinding(d.BindingConditions, d.BindingFailureConditions, path)...)
}

// countValues returns the number of values of a device's attributes.
func countValues(d *resourcev1.Device) int {
	n := 0
	for _, a := range d.Attributes {
		n += max(1, len(a.BoolValues)+len(a.IntValues)+len(a.StringValues)+len(a.VersionValues))
	}
	return n
}

// shortenName keeps the beginning and the end of a name that is too long for the path of an error.
func shortenName(name string) string {
	const most = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
	if len(name) <= most {
		return name
	}
	left := most - len("...")
	return name[:(left+1)/2] + "..." + name[len(name)-left/2:]
}

func validateDeviceNodes(d *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
		}
		return nil
	}
	var errs field.ErrorList
	var set []string
	if n := d.NodeName; n != nil {
		if *n == "" {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *n, "must not be empty"))
		} else {
			set = append(set, "`nodeName`")
			errs = append(errs, check.DNSSubdomain(*n, path.Child("nodeName"))...)
		}
	}
	if d.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, podplacement.ValidateNodeSelector(d.NodeSelector, false, path.Child("nodeSelector"))...)
	}
	if a := d.AllNodes; a != nil {
		if *a {
			set = append(set, "`allNodes`")
		} else {
			errs = append(errs, field.Invalid(path.Child("allNodes"), *a, "must be either unset or set to true"))
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	switch len(set) {
	case 0:
		errs = append(errs, field.Required(path, one))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, "{"+strings.Join(set, ", ")+"}", one))
	}
	return errs
}

func validateCounters(name string, counters map[string]resourcev1.Counter, most int, path *field.Path, nameField string) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("counters")
	if len(counters) > most {
		errs = append(errs, field.TooMany(at, len(counters), most))
	}
	if name == "" {
		errs = append(errs, markDeclarative(field.ErrorList{field.Required(path.Child(nameField), "")})...)
	} else {
		errs = append(errs, markDeclarative(check.DNSLabel(name, path.Child(nameField)))...)
	}
	if len(counters) == 0 {
		errs = append(errs, markDeclarative(field.ErrorList{field.Required(at, "")})...)
	}
	if len(counters) <= most {
		for _, key := range slices.Sorted(maps.Keys(counters)) {
			errs = append(errs, markDeclarative(check.DNSLabel(key, at))...)
		}
	}
	return errs
}

const semver = `^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`

// validateAttribute requires exactly one value. Lists of values are a disabled feature.
func validateAttribute(a resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var set []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"int", a.IntValue != nil}, {"bool", a.BoolValue != nil}, {"string", a.StringValue != nil}, {"version", a.VersionValue != nil},
		{"ints", a.IntValues != nil}, {"bools", a.BoolValues != nil}, {"strings", a.StringValues != nil},
		{"versions", a.VersionValues != nil},
	} {
		if f.set {
			set = append(set, f.name)
		}
	}
	if s := a.StringValue; s != nil && len(*s) > resourcev1.DeviceAttributeMaxValueLength {
		errs = append(errs, field.TooLong(path.Child("string"), "", resourcev1.DeviceAttributeMaxValueLength))
	}
	if v := a.VersionValue; v != nil {
		if ok, err := regexp.MatchString(semver, *v); !ok || err != nil {
			errs = append(errs, field.Invalid(path.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(path.Child("version"), "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	const known = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
	switch len(set) {
	case 0:
		errs = append(errs, markDeclarative(field.ErrorList{field.Invalid(path, "", "must specify one of: "+known)})...)
	case 1:
	default:
		errs = append(errs, markDeclarative(field.ErrorList{field.Invalid(path, "{"+strings.Join(set, ", ")+"}",
			"must specify exactly one of: "+known)})...)
	}
	return errs
}

// validateExtended requires the name of an extended resource that a quota can name too.
func validateExtended(name string, path *field.Path) field.ErrorList {
	const requests = "requests."
	var errs field.ErrorList
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'"))
	} else if strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf("must not have %q domain", corev1.ResourceDefaultNamespacePrefix)))
	}
	if strings.HasPrefix(name, requests) {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf("must not have %q prefix", requests)))
	}
	return append(errs, check.Messages(name, path, content.IsLabelKey(requests+name))...)
}
