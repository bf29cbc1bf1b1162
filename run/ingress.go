package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/network/ingress"
	"proa.dev/network/route"
)

// IngressConfig is what can be said about Ingresses. Servers that have a node serve them.
type IngressConfig struct {
	// Class is the name of the IngressClass; empty serves none.
	Class string
	// HTTPPort and HTTPSPort are open while an Ingress needs them; 0 for never.
	HTTPPort, HTTPSPort int
}

func defaultIngress() IngressConfig {
	return IngressConfig{Class: "proa", HTTPPort: 80, HTTPSPort: 443}
}

// ingressSettings are those about Ingresses.
func ingressSettings() []Setting {
	return []Setting{
		{Name: "ingress-class", Help: "serve Ingresses of the class `NAME` (proa), which is made and is the default if there is no other; off serves none",
			Set: one(func(c *Config, v string) error {
				if c.Ingress.Class = v; v == "off" {
					c.Ingress.Class = ""
					return nil
				}
				return checkName(v)
			})},
		{Name: "ingress-http-port", Help: "serve them at port `N` (80); 0 for not",
			Set: one(func(c *Config, v string) (err error) { c.Ingress.HTTPPort, err = parsePort(v); return err })},
		{Name: "ingress-https-port", Help: "serve them with TLS at port `N` (443); 0 for not",
			Set: one(func(c *Config, v string) (err error) { c.Ingress.HTTPSPort, err = parsePort(v); return err })},
	}
}

func (c *Config) checkIngress() error {
	if i := c.Ingress; i.Class != "" && i.HTTPPort != 0 && i.HTTPPort == i.HTTPSPort {
		return fmt.Errorf("ingress-http-port and ingress-https-port are both %d; one port is for one of them", i.HTTPPort)
	}
	return nil
}

// ingressName is the service account that serves Ingresses. Nodes themselves must not read Secrets.
const ingressName = "proa-ingress"

func (c *Config) servesIngresses() bool { return c.Node.Name != "" && c.Ingress.Class != "" }

// openIngress makes the role and the numbers of what serves Ingresses.
func (s *Server) openIngress(counts prometheus.Registerer) error {
	if !s.servesIngresses() {
		return nil
	}
	may := func(verbs []string, on schema.GroupResource, sub string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{on.Group}, Resources: []string{on.Resource + sub}}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "proa:ingress"}}
	for _, on := range []schema.GroupResource{ingress.Ingresses(), ingress.Classes(), gr.Services, gr.EndpointSlices, gr.Secrets, gr.Nodes} {
		role.Rules = append(role.Rules, may([]string{"get", "list", "watch"}, on, ""))
	}
	role.Rules = append(role.Rules, may([]string{"update"}, ingress.Ingresses(), "/status"), may([]string{"create", "update", "patch"}, gr.Events, ""))
	s.policy.ClusterRoles = append(s.policy.ClusterRoles, role)
	s.policy.ClusterRoleBindings = append(s.policy.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: ingressName}},
	})
	s.ingressCounts = route.NewMetrics("ingress")
	return counts.Register(s.ingressCounts)
}

// beginIngress makes the class, so that whoever finds the server ready finds it too, and starts to serve.
func (s *Server) beginIngress(ctx context.Context, wg *sync.WaitGroup) {
	if !s.servesIngresses() {
		return
	}
	if err := plantClass(ctx, s.front.Client(apiserver()), s.Ingress.Class); err != nil {
		s.log.ErrorContext(ctx, "the class of Ingresses could not be made", "class", s.Ingress.Class, "err", err)
	}
	wg.Go(func() { s.persist(ctx, "ingress", func() error { return s.runIngress(ctx) }) })
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
func (s *Server) runIngress(ctx context.Context) error {
	c := s.front.Client(account(ingressName))
	config := ingress.Config{
		NodeName: s.Node.Name, Class: s.Ingress.Class, HTTPPort: s.Ingress.HTTPPort, HTTPSPort: s.Ingress.HTTPSPort,
		Writer: c, Metrics: s.ingressCounts, Log: s.log,
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
	events := client.NewRecorder(c, ingressName, s.log).On(s.Node.Name)
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
