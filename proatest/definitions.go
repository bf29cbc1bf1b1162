package proatest

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest/manifest"
	"proa.dev/run"
)

// Definitions installs the CustomResourceDefinitions of files and folders before the test begins, and waits until their resources are
// served. Other objects in the files are left out.
func Definitions(paths ...string) Option {
	return func(c *run.Config) {
		c.Prepare = append(c.Prepare, func(ctx context.Context, s *run.Server) error {
			all, err := manifest.Definitions(paths...)
			if err == nil && len(all) == 0 {
				err = fmt.Errorf("there is none in %q", paths)
			}
			if err != nil {
				return fmt.Errorf("read CustomResourceDefinitions: %w", err)
			}
			return install(ctx, s.Client(admin()), all)
		})
	}
}

// DefinitionObjects installs the given definitions as Definitions does.
func DefinitionObjects(all ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(c *run.Config) {
		c.Prepare = append(c.Prepare, func(ctx context.Context, s *run.Server) error { return install(ctx, s.Client(admin()), all) })
	}
}

// install creates definitions, unless they exist already, and waits until they are established.
func install(ctx context.Context, c client.Client, all []*apiextensionsv1.CustomResourceDefinition) error {
	waiting := map[string]bool{}
	for _, d := range all {
		if _, err := c.Create(ctx, gr.CustomResourceDefinitions, d.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the CustomResourceDefinition %s: %w", d.Name, err)
		}
		waiting[d.Name] = true
	}
	view, err := c.View(ctx, gr.CustomResourceDefinitions)
	if err != nil {
		return err
	}
	for event := range view.Events(ctx) {
		d, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || !waiting[d.Name] {
			continue
		}
		for _, condition := range d.Status.Conditions {
			switch {
			case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
				return fmt.Errorf("the CustomResourceDefinition %s: %s", d.Name, condition.Message)
			case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
				delete(waiting, d.Name)
			}
		}
		if len(waiting) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the CustomResourceDefinitions are not established: %w", context.Cause(ctx))
}
