package machine

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/network/ingress"
	"proa.dev/run"
)

// beginIngress makes the class, so that whoever finds the server ready finds it too, and starts to serve.
func (s *Machine) beginIngress(ctx context.Context, wg *sync.WaitGroup) {
	if !s.ServesIngresses() {
		return
	}
	if err := plantClass(ctx, s.Own(), s.Ingress.Class); err != nil {
		s.Log().ErrorContext(ctx, "the class of Ingresses could not be made", "class", s.Ingress.Class, "err", err)
	}
	wg.Go(func() { s.Persist(ctx, "ingress", func() error { return s.runIngress(ctx) }) })
}

// plantClass makes the class if there is none of its name. It is the default unless there is another: of two defaults the newer
// one counts, and what was chosen before must not change.
func plantClass(ctx context.Context, c client.Client, name string) error {
	view, err := c.View(ctx, ingress.Classes())
	if err != nil {
		return err
	}
	if err := view.Reach(ctx, 0); err != nil {
		return err
	}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: ingress.Controller}}
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
	c := s.Account(run.IngressAccount)
	config := ingress.Config{
		NodeName: s.Node.Name, Class: s.Ingress.Class, HTTPPort: s.Ingress.HTTPPort, HTTPSPort: s.Ingress.HTTPSPort,
		Ranges: slices.Concat(s.ServiceCIDRs, s.ClusterCIDRs()), Writer: c, Metrics: s.ingresses, Log: s.Log(),
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
	events := client.NewRecorder(c, run.IngressAccount, s.Log()).On(s.Node.Name)
	config.Complain = func(about kind.Object, reason, message string) {
		events.Event(about, corev1.EventTypeWarning, reason, "%s", message)
	}
	server, err := ingress.New(config)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { events.Run(ctx) })
	return server.Run(ctx)
}
