package controllers

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/customresourcedefinition"
	"proa.dev/control/garbagecollector"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// checkingClient is a client that checks that the definitions which a controller writes are complete.
type checkingClient struct {
	client.Client
	t          *testing.T
	controller string
	mu         sync.Mutex // guards wrote
	wrote      int
}

func (i *checkingClient) Update(ctx context.Context, on schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	if d, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
		if d.Spec.Versions[0].Schema == nil || len(d.ManagedFields) == 0 {
			i.t.Errorf("%s writes the outline of a definition", i.controller)
		}
		i.mu.Lock()
		i.wrote++
		i.mu.Unlock()
	}
	return i.Client.Update(ctx, on, o, sub)
}

// TestDefinitionsAreWrittenCompletely checks that controllers whose views show outlines of definitions write complete definitions,
// which webhooks and policies see.
func TestDefinitionsAreWrittenCompletely(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		controllers := append(customresourcedefinition.Controllers(func(schema.GroupResource) bool { return false }),
			garbagecollector.New(garbagecollector.Resources(kinds.All)).Controller())
		var inspectors []*checkingClient
		for _, ctl := range controllers {
			i := &checkingClient{Client: cluster.Client, t: t, controller: ctl.Name}
			inspectors = append(inspectors, i)
			wg.Go(func() {
				if err := control.Run(ctx, slog.New(slog.DiscardHandler), i, ctl, nil); err != nil {
					t.Error(err)
				}
			})
		}
		d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
		d.Spec.Group, d.Spec.Scope = "example.com", apiextensionsv1.NamespaceScoped
		d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"}
		d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
			}}}
		if _, err := cluster.Client.Create(ctx, gr.CustomResourceDefinitions, d); err != nil {
			t.Fatal(err)
		}
		settle()
		orphan := metav1.DeletePropagationOrphan
		if err := cluster.Client.Delete(ctx, gr.CustomResourceDefinitions, "", d.Name,
			metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
			t.Fatal(err)
		}
		settle()
		for _, i := range inspectors {
			i.mu.Lock()
			if i.wrote == 0 {
				t.Errorf("%s has written no definition", i.controller)
			}
			i.mu.Unlock()
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}
