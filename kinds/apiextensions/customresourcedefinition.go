package apiextensions

import (
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

type crd = apiextensionsv1.CustomResourceDefinition

// CustomResourceDefinitions add kinds to the server.
func CustomResourceDefinitions(h Hooks) *kind.Def {
	return kind.Define(kind.Resource[crd]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition"},
			Plural:           "customresourcedefinitions", Scope: kind.Cluster,
			Older: []kind.OlderVersion{kind.Older("v1beta1", definitionFromV1beta1)},
			Short: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
			StorageFolder:           "apiextensions.k8s.io/customresourcedefinitions",
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Spec:         func(c *crd) any { return &c.Spec },
		Status:       func(c *crd) any { return &c.Status },
		AnyFinalizer: true,
		Default:      defaultCRD,
		Prepare:      func(c, _ *crd) { noteStorageVersion(c) },
		Validate:     h.validate,
		Warn:         h.warn,
		Delete:       kind.Deletion[crd]{Begin: beginDeletion, PreconditionText: "precondition failed"},
		// Metadata is not reverted: clients may change finalizers through status.
		Subs:    []kind.Sub[crd]{{Name: "status", Validate: validateCRDStatus}},
		Columns: columns(),
		Outline: outline,
	})
}

func columns() []kind.Column[crd] {
	return []kind.Column[crd]{
		kind.NameColumn[crd](),
		{Name: "Scope", Description: "Cluster/Namespaced", Value: func(c *crd) any { return string(c.Spec.Scope) }},
		{Name: "Versions", Description: "Served versions", Value: func(c *crd) any { return servedVersions(c) }},
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], Value: func(c *crd) any {
			return c.CreationTimestamp.UTC().Format(time.RFC3339)
		}},
		{Name: "Group", Wide: true, Description: "API group", Value: func(c *crd) any { return c.Spec.Group }},
		{Name: "Kind", Wide: true, Description: "CustomResource kind", Value: func(c *crd) any { return c.Spec.Names.Kind }},
		{Name: "ShortNames", Wide: true, Description: "Short names",
			Value: func(c *crd) any { return strings.Join(c.Spec.Names.ShortNames, ",") }},
		{Name: "Established", Type: "boolean", Wide: true, Description: "Established status", Value: func(c *crd) any {
			return slices.ContainsFunc(c.Status.Conditions, func(x apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return x.Type == apiextensionsv1.Established && x.Status == apiextensionsv1.ConditionTrue
			})
		}},
	}
}

func servedVersions(c *crd) string {
	var versions []string
	for _, v := range c.Spec.Versions {
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions)
	return strings.Join(versions, ",")
}

func defaultCRD(c *crd) {
	names := &c.Spec.Names
	if names.Singular == "" {
		names.Singular = strings.ToLower(names.Kind)
	}
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	if c.Spec.Conversion == nil {
		c.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	if hook := c.Spec.Conversion.Webhook; hook != nil && hook.ClientConfig != nil && hook.ClientConfig.Service != nil &&
		hook.ClientConfig.Service.Port == nil {
		hook.ClientConfig.Service.Port = new(int32(443))
	}
	if len(c.Status.StoredVersions) == 0 {
		noteStorageVersion(c)
	}
}

// noteStorageVersion adds the storage version to status.storedVersions, because objects of that version may now
// exist.
func noteStorageVersion(c *crd) {
	for _, v := range c.Spec.Versions {
		if !v.Storage {
			continue
		}
		if !slices.Contains(c.Status.StoredVersions, v.Name) {
			c.Status.StoredVersions = append(slices.Clip(c.Status.StoredVersions), v.Name)
		}
		return
	}
}
