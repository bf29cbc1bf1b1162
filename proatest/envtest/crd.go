package envtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"proa.dev/proatest/manifest"
)

const definitions = "customresourcedefinitions"

// CRDInstallOptions says which CustomResourceDefinitions to install, and how.
type CRDInstallOptions struct {
	// Scheme tells which custom resources are converted by the operator's webhook; see Environment.
	Scheme *runtime.Scheme
	// Paths are files and folders with definitions.
	Paths []string
	// CRDs are definitions besides those in files.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// ErrorIfPathMissing makes it an error if a path does not exist; otherwise the path is skipped.
	ErrorIfPathMissing bool
	// MaxTime is how long, and PollInterval how often, to check whether the resources are served.
	MaxTime, PollInterval time.Duration
	// CleanUpAfterUse deletes the definitions when the environment stops.
	CleanUpAfterUse bool
	// WebhookOptions has the address of the webhook that converts objects. Environment sets it; other callers set the address and
	// LocalServingCAData.
	WebhookOptions WebhookInstallOptions
}

// InstallCRDs creates definitions, or replaces them, and waits until their resources are served. It returns those that were installed.
func InstallCRDs(config *rest.Config, options CRDInstallOptions) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if err := ReadCRDFiles(&options); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinitions: %w", err)
	}
	if err := convertLocally(options.CRDs, cmp.Or(options.Scheme, scheme.Scheme), options.WebhookOptions); err != nil {
		return nil, err
	}
	if err := CreateCRDs(config, options.CRDs); err != nil {
		return options.CRDs, err
	}
	return options.CRDs, WaitForCRDs(config, options.CRDs, options)
}

// ReadCRDFiles adds the definitions in options.Paths to options.CRDs.
func ReadCRDFiles(options *CRDInstallOptions) error {
	paths := options.Paths
	if !options.ErrorIfPathMissing {
		paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool { _, err := os.Stat(path); return os.IsNotExist(err) })
	}
	found, err := manifest.Definitions(paths...)
	options.CRDs = append(options.CRDs, found...)
	return err
}

// CreateCRDs creates definitions, or replaces them.
func CreateCRDs(config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	c, err := clientFor(config, apiextensionsv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	for _, d := range crds {
		if err := ensure(c, definitions, d); err != nil {
			return fmt.Errorf("create the CustomResourceDefinition %s: %w", d.Name, err)
		}
	}
	return nil
}

// WaitForCRDs waits until every version of the definitions that is served is shown by discovery.
func WaitForCRDs(config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition, options CRDInstallOptions) error {
	for _, d := range crds {
		for _, v := range d.Spec.Versions {
			if !v.Served {
				continue
			}
			gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
			c, err := clientFor(config, gv)
			if err != nil {
				return err
			}
			what := fmt.Sprintf("%s in %s", d.Spec.Names.Plural, gv)
			if err := poll(cmp.Or(options.PollInterval, defaultInterval), cmp.Or(options.MaxTime, defaultMaxTime), what,
				func(ctx context.Context) (bool, error) {
					var list metav1.APIResourceList
					err := c.Get().AbsPath("/apis/" + gv.String()).Do(ctx).Into(&list)
					isServed := slices.ContainsFunc(list.APIResources,
						func(r metav1.APIResource) bool { return r.Name == d.Spec.Names.Plural })
					return err == nil && isServed, nil
				}); err != nil {
				return err
			}
		}
	}
	return nil
}

// UninstallCRDs deletes definitions. It is no error if one does not exist.
func UninstallCRDs(config *rest.Config, options CRDInstallOptions) error {
	if err := ReadCRDFiles(&options); err != nil {
		return err
	}
	c, err := clientFor(config, apiextensionsv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	for _, d := range options.CRDs {
		if err := c.Delete().Resource(definitions).Name(d.Name).Do(background()).Error(); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// mergeDefinitions returns copies of the definitions of both lists; of two with the same name that of the second one.
func mergeDefinitions(a, b []*apiextensionsv1.CustomResourceDefinition) (out []*apiextensionsv1.CustomResourceDefinition) {
	for _, d := range slices.Concat(a, b) {
		out = slices.DeleteFunc(out, func(o *apiextensionsv1.CustomResourceDefinition) bool { return o.Name == d.Name })
		out = append(out, d.DeepCopy())
	}
	return out
}

// mergePaths returns the paths of both lists, each once.
func mergePaths(a, b []string) (out []string) {
	for _, path := range slices.Concat(a, b) {
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}
