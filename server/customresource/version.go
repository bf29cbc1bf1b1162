package customresource

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"proa.dev/kinds/kind"
	"proa.dev/server/celenv"
)

// version is one version of a custom resource.
type version struct {
	resource *Resource
	spec     *apiextensionsv1.CustomResourceDefinitionVersion // shared and read-only, and without its schema
	def      *kind.Def

	// schema, rules and quantities are computed when they are first needed. quantities is what rules read as
	// quantities.
	schema     func() (*compiled, error)
	rules      func() *cel.Validator
	quantities func() celenv.Reads
}

// compiled is the schema of a version in the forms that the libraries need.
type compiled struct {
	// structural is nil if the version has no schema, or one that is not structural.
	structural    *structuralschema.Structural
	whole, status validation.SchemaValidator
}

func newVersion(r *Resource, spec *apiextensionsv1.CustomResourceDefinitionVersion) *version {
	v := &version{resource: r, spec: spec}
	v.schema = sync.OnceValues(v.compile)
	v.rules = sync.OnceValue(func() *cel.Validator {
		c, err := v.schema()
		if err != nil || c.structural == nil {
			return nil
		}
		celenv.Base() // the validator takes the environment that this has bounded
		return cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	})
	v.quantities = sync.OnceValue(func() celenv.Reads {
		c, err := v.schema()
		if err != nil || c.structural == nil {
			return celenv.Reads{}
		}
		return readsQuantities(c.structural)
	})
	v.def = v.describe()
	return v
}

// compile converts the schema.
func (v *version) compile() (*compiled, error) {
	var internal apiextensions.CustomResourceValidation
	if stored := v.storedSchema(); stored != nil {
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(stored.DeepCopy(),
			&internal, nil); err != nil {
			return nil, fmt.Errorf("schema of version %s: %w", v.spec.Name, err)
		}
	}
	c := &compiled{}
	var err error
	if c.whole, _, err = validation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
		return nil, fmt.Errorf("schema of version %s: %w", v.spec.Name, err)
	}
	if internal.OpenAPIV3Schema == nil {
		return c, nil
	}
	if status, found := internal.OpenAPIV3Schema.Properties["status"]; found && v.hasStatus() {
		if c.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, fmt.Errorf("schema of the status of version %s: %w", v.spec.Name, err)
		}
	}
	s, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	switch {
	case v.preservesUnknown():
		c.structural = s
		return c, nil
	case err != nil:
		return nil, fmt.Errorf("schema of version %s: %w", v.spec.Name, err)
	}
	c.structural = s.DeepCopy() // the conversion shares defaults with its input
	if err := structuraldefaulting.PruneDefaults(c.structural); err != nil {
		return nil, fmt.Errorf("defaults of version %s: %w", v.spec.Name, err)
	}
	return c, nil
}

// storedSchema returns the schema of the version as the definition has it; nil if there is none. It is shared and
// read-only.
func (v *version) storedSchema() *apiextensionsv1.CustomResourceValidation {
	versions := v.resource.whole().Spec.Versions
	if i := slices.IndexFunc(versions,
		func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == v.spec.Name }); i >= 0 {
		return versions[i].Schema
	}
	return nil
}

// structural returns the schema of the version; nil if it has none that can be used.
func (v *version) structural() *structuralschema.Structural {
	c, err := v.schema()
	if err != nil {
		return nil
	}
	return c.structural
}

func (v *version) hasStatus() bool {
	return v.spec.Subresources != nil && v.spec.Subresources.Status != nil
}

func (v *version) scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if v.spec.Subresources == nil {
		return nil
	}
	return v.spec.Subresources.Scale
}

// preservesUnknown reports whether objects keep fields that the schema does not have, as before v1 of definitions.
func (v *version) preservesUnknown() bool { return v.resource.Definition.Spec.PreserveUnknownFields }
