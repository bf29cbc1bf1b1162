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
	"proa.dev/control/definition"
	"proa.dev/control/gc"
	"proa.dev/kinds"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/proatest"
	"proa.dev/run"
)

// inspector is a client that looks at the definitions which a loop writes.
type inspector struct {
	client.Client
	t     *testing.T
	loop  string
	mu    sync.Mutex // guards wrote
	wrote int
}

func (i *inspector) Update(ctx context.Context, on schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	if d, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
		if d.Spec.Versions[0].Schema == nil || len(d.ManagedFields) == 0 {
			i.t.Errorf("%s writes the outline of a definition", i.loop)
		}
		i.mu.Lock()
		i.wrote++
		i.mu.Unlock()
	}
	return i.Client.Update(ctx, on, o, sub)
}

// TestDefinitionsAreWrittenWhole: loops whose views show outlines of definitions write definitions with all their parts, so that webhooks and policies
// that see the write see the definition.
func TestDefinitionsAreWrittenWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.Loops = func([]control.Controller) []control.Controller { return nil }
		})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		loops := append(definition.Controllers(func(schema.GroupResource) bool { return false }), gc.New(gc.Resources(kinds.All)).Controller())
		var inspectors []*inspector
		for _, ctl := range loops {
			i := &inspector{Client: cluster.Client, t: t, loop: ctl.Name}
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
		d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
		}}}
		if _, err := cluster.Client.Create(ctx, gr.CustomResourceDefinitions, d); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		orphan := metav1.DeletePropagationOrphan
		if err := cluster.Client.Delete(ctx, gr.CustomResourceDefinitions, "", d.Name, metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, i := range inspectors {
			i.mu.Lock()
			if i.wrote == 0 {
				t.Errorf("%s has written no definition", i.loop)
			}
			i.mu.Unlock()
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}
