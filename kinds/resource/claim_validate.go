package resource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// Hooks are functions of the server that these kinds need. The zero value accepts every expression.
type Hooks struct {
	// Selector compiles a CEL expression that selects devices, and returns its error or nil.
	Selector func(path *field.Path, expression string) *field.Error
}

// requests are the names of a claim's requests and, below them, of their alternatives.
type requests map[string][]string

func requestNames(c *resourcev1.DeviceClaim) requests {
	names := requests{}
	for _, r := range c.Requests {
		names[r.Name] = nil
		for _, s := range r.FirstAvailable {
			names[r.Name] = append(names[r.Name], s.Name)
		}
	}
	return names
}

// validateRef requires the name of a request, or of a request and one of its alternatives.
func (n requests) validateRef(name *string, path *field.Path) field.ErrorList {
	const text = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(*name, "/")
	if len(parts) > 2 {
		return field.ErrorList{field.Invalid(path, *name, text)}
	}
	var errs field.ErrorList
	for _, p := range parts {
		errs = append(errs, check.DNSLabel(p, path)...)
	}
	subs, found := n[parts[0]]
	if !found || len(parts) == 2 && !slices.Contains(subs, parts[1]) {
		errs = append(errs, field.Invalid(path, *name, text))
	}
	return errs
}

func deref(s *string) string { return *s }

func (h Hooks) validateClaim(c, old *resourcev1.ResourceClaim) field.ErrorList {
	spec := field.NewPath("spec")
	if old != nil {
		if equality.Semantic.DeepEqual(c.Spec, old.Spec) {
			return nil
		}
		return field.ErrorList{check.ImmutableError(spec)}
	}
	return declarativeLast(h.validateDevices(&c.Spec.Devices, spec.Child("devices")))
}

func (h Hooks) validateTemplate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(validateTemplateMeta(&t.Spec.ObjectMeta, spec.Child("metadata")),
		h.validateDevices(&t.Spec.Spec.Devices, spec.Child("spec", "devices"))...)
	if old != nil {
		errs = append(errs, check.ImmutableStruct(t.Spec, old.Spec, spec)...)
	}
	return declarativeLast(errs)
}

func validateTemplateMeta(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != ""}, {"generateName", m.GenerateName != ""}, {"namespace", m.Namespace != ""},
		{"selfLink", m.SelfLink != ""}, {"uID", m.UID != ""}, {"resourceVersion", m.ResourceVersion != ""},
		{"generation", m.Generation != 0}, {"creationTimestamp", !m.CreationTimestamp.IsZero()},
		{"deletionTimestamp", m.DeletionTimestamp != nil}, {"deletionGracePeriodSeconds", m.DeletionGracePeriodSeconds != nil},
		{"ownerReferences", m.OwnerReferences != nil}, {"finalizers", m.Finalizers != nil}, {"managedFields", m.ManagedFields != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), "cannot be set"))
		}
	}
	return errs
}

func (h Hooks) validateDevices(c *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	names := requestNames(c)
	errs := validateUnique(c.Requests, resourcev1.DeviceRequestsMaxSize, path.Child("requests"),
		func(r *resourcev1.DeviceRequest) string { return r.Name }, h.validateRequest)
	errs = append(errs, validateEach(c.Constraints, resourcev1.DeviceConstraintsMaxSize, path.Child("constraints"),
		func(x *resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
			errs := validateUnique(x.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), deref, names.validateRef)
			if x.MatchAttribute != nil {
				errs = append(errs, markDeclarative(validateFullyQualified(string(*x.MatchAttribute), at.Child("matchAttribute")))...)
			}
			if x.DistinctAttribute != nil {
				errs = append(errs, markDeclarative(validateFullyQualified(string(*x.DistinctAttribute), at.Child("distinctAttribute")))...)
			}
			if x.MatchAttribute == nil && x.DistinctAttribute == nil {
				errs = append(errs, field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
			}
			return errs
		})...)
	return append(errs, validateEach(c.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(x *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
			errs := validateUnique(x.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), deref, names.validateRef)
			return append(errs, validateConfig(&x.DeviceConfiguration, false, at)...)
		})...)
}

func (h Hooks) validateRequest(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	errs := check.DNSLabel(r.Name, path.Child("name"))
	switch exactly, first := r.Exactly != nil, len(r.FirstAvailable) > 0; {
	case !exactly && !first:
		errs = append(errs, field.Required(path, "exactly one of `exactly` or `firstAvailable` is required"))
	case exactly && first:
		errs = append(errs, field.Invalid(path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
		// Declarative validation checks both all the same.
		both := append(h.validateExactly(r, path.Child("exactly")), h.validateFirst(r, path.Child("firstAvailable"))...)
		errs = append(errs, slices.DeleteFunc(both, func(e *field.Error) bool { return !e.CoveredByDeclarative })...)
	case first:
		errs = append(errs, h.validateFirst(r, path.Child("firstAvailable"))...)
	default:
		errs = append(errs, h.validateExactly(r, path.Child("exactly"))...)
	}
	return errs
}

func (h Hooks) validateExactly(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	e := r.Exactly
	return append(validateClassName(e.DeviceClassName, path.Child("deviceClassName")),
		h.validateWish(e.Selectors, e.AllocationMode, e.Count, e.Tolerations, path)...)
}

func (h Hooks) validateFirst(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	return validateUnique(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, path,
		func(s *resourcev1.DeviceSubRequest) string { return s.Name },
		func(s *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
			errs := append(check.DNSLabel(s.Name, at.Child("name")),
				markDeclarative(validateClassName(s.DeviceClassName, at.Child("deviceClassName")))...)
			return append(errs, h.validateWish(s.Selectors, s.AllocationMode, s.Count, s.Tolerations, at)...)
		})
}

func (h Hooks) validateWish(selectors []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64,
	tolerations []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	errs := h.validateSelectors(selectors, false, path.Child("selectors"))
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if count != 0 {
			errs = append(errs, field.Invalid(path.Child("count"), count,
				fmt.Sprintf("must not be specified when allocationMode is '%s'", mode)))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if count <= 0 {
			errs = append(errs, field.Invalid(path.Child("count"), count, "must be greater than zero"))
		}
	default:
		known := []resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}
		errs = append(errs, markDeclarative(field.ErrorList{field.NotSupported(path.Child("allocationMode"), mode, known)})...)
	}
	return append(errs, validateEach(tolerations, resourcev1.DeviceTolerationsMaxLength, path.Child("tolerations"), validateToleration)...)
}

func validateClassName(class string, path *field.Path) field.ErrorList {
	if class == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return check.DNSSubdomain(class, path)
}

// validateSelectors does not compile expressions that are stored already.
func (h Hooks) validateSelectors(selectors []resourcev1.DeviceSelector, stored bool, path *field.Path) field.ErrorList {
	return validateEach(selectors, resourcev1.DeviceSelectorsMaxSize, path,
		func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
			if s.CEL == nil {
				return field.ErrorList{field.Required(at.Child("cel"), "")}
			}
			at = at.Child("cel", "expression")
			switch {
			case stored:
			case len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength:
				return field.ErrorList{field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)}
			case h.Selector != nil:
				if err := h.Selector(at, s.CEL.Expression); err != nil {
					return field.ErrorList{err}
				}
			}
			return nil
		})
}

func validateConfig(c *resourcev1.DeviceConfiguration, stored bool, path *field.Path) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(path.Child("opaque"), "")}
	}
	at := path.Child("opaque")
	return append(markDeclarative(validateNamedDriver(c.Opaque.Driver, at.Child("driver"))),
		validateRaw(c.Opaque.Parameters, stored, resourcev1.OpaqueParametersMaxLength, at.Child("parameters"))...)
}

// validateRaw requires a JSON object. A stored one may be longer than is allowed now.
func validateRaw(r runtime.RawExtension, stored bool, most int, path *field.Path) field.ErrorList {
	if len(r.Raw) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if !stored && len(r.Raw) > most {
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	var v any
	if err := json.Unmarshal(r.Raw, &v); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err.Error()))}
	}
	switch v.(type) {
	case nil:
		return field.ErrorList{field.Required(path, "")}
	case map[string]any:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
}

func (h Hooks) validateClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	spec := field.NewPath("spec")
	sameSelectors := old != nil && equality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors)
	sameConfig := old != nil && equality.Semantic.DeepEqual(c.Spec.Config, old.Spec.Config)
	errs := h.validateSelectors(c.Spec.Selectors, sameSelectors, spec.Child("selectors"))
	errs = append(errs, validateEach(c.Spec.Config, resourcev1.DeviceConfigMaxSize, spec.Child("config"),
		func(x *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
			return validateConfig(&x.DeviceConfiguration, sameConfig, at)
		})...)
	if name := c.Spec.ExtendedResourceName; name != nil {
		errs = append(errs, markDeclarative(validateExtended(*name, spec.Child("extendedResourceName")))...)
	}
	return declarativeLast(errs)
}

func validateTaintRule(r, old *resourcev1.DeviceTaintRule) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if s := r.Spec.DeviceSelector; s != nil {
		at := spec.Child("deviceSelector")
		for _, f := range []struct {
			value *string
			name  string
			check func(string, *field.Path) field.ErrorList
		}{{s.Driver, "driver", check.CSIDriverName}, {s.Pool, "pool", validatePool}, {s.Device, "device", check.DNSLabel}} {
			if f.value != nil {
				errs = append(errs, f.check(*f.value, at.Child(f.name))...)
			}
		}
	}
	var was *resourcev1.DeviceTaint
	if old != nil {
		was = &old.Spec.Taint
	}
	return declarativeLast(append(errs, validateTaint(&r.Spec.Taint, was, spec.Child("taint"))...))
}

func validateTaintRuleStatus(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	path := field.NewPath("status", "conditions")
	errs := metav1validation.ValidateConditions(r.Status.Conditions, path)
	if n := len(r.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(path, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return errs
}
