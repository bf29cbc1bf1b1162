package machine

import (
	"context"
	"slices"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/ingress"
	"proa.dev/run/bootstraproles"
)

// beginIngress creates the IngressClass, so that it exists when the server is ready, and starts the proxy.
func (s *Machine) beginIngress(ctx context.Context, wg *sync.WaitGroup) {
	if !s.ServesIngresses() {
		return
	}
	if err := createIngressClass(ctx, s.OwnClient(), s.Ingress.Class); err != nil {
		s.Log().ErrorContext(ctx, "the IngressClass cannot be created", "class", s.Ingress.Class, "err", err)
	}
	wg.Go(func() { s.Persist(ctx, "ingress", func() error { return s.runIngress(ctx) }) })
}

// createIngressClass creates the IngressClass if there is none of its name. It becomes the default only if there is no other
// default: of two defaults the newer one counts, and an existing choice must not change.
func createIngressClass(ctx context.Context, c client.Client, name string) error {
	view, err := c.View(ctx, ingress.Classes())
	if err != nil {
		return err
	}
	if err := view.Reach(ctx, 0); err != nil {
		return err
	}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.IngressClassSpec{Controller: ingress.Controller}}
	def := true
	for o := range view.List("") {
		if o.GetName() == name {
			return nil
		}
		def = def && o.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass] != "true"
	}
	if def {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	if _, err := c.Create(ctx, ingress.Classes(), class); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// runIngress serves Ingresses until ctx ends.
func (s *Machine) runIngress(ctx context.Context) error {
	c := s.AccountClient(bootstraproles.IngressAccount)
	config := ingress.Config{
		NodeName: s.Node.Name, Class: s.Ingress.Class, HTTPPort: s.Ingress.HTTPPort, HTTPSPort: s.Ingress.HTTPSPort,
		Ranges: slices.Concat(s.ServiceCIDRs, s.ClusterCIDRs()), Writer: c, Metrics: s.ingresses, Record: s.RecordHops,
		Answered: s.answers.Answered,
		Log:      s.Log(),
	}
	var err error
	for on, to := range map[schema.GroupResource]*client.View{
		ingress.Ingresses(): &config.Ingresses, ingress.Classes(): &config.Classes, gr.Services: &config.Services,
		gr.EndpointSlices: &config.Slices, gr.Secrets: &config.Secrets, gr.Nodes: &config.Nodes,
	} {
		if *to, err = c.View(ctx, on); err != nil {
			return err
		}
	}
	events := client.NewRecorder(c, bootstraproles.IngressAccount, s.Log()).ForNode(s.Node.Name)
	config.RecordEvent = warner(events)
	server, err := ingress.New(config)
	if err != nil {
		return err
	}
	return runWithEvents(ctx, events, server.Run)
}
