package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/network/httpproxy"
)

// key is the namespace and name of an object.
type key = types.NamespacedName

// world is the part of the cluster that the rules are made from.
type world struct {
	ingresses []*networkingv1.Ingress
	// class and service find objects; nil where there is none.
	class   func(name string) *networkingv1.IngressClass
	service func(k key) *corev1.Service
	// trusted returns the CA certificates of a Secret, as PEM.
	trusted func(k key) (string, error)
	// ownClass is the name of a class that is served even if there is no IngressClass object.
	ownClass string
	// hasTLSPort reports whether the server has a port for TLS.
	hasTLSPort bool
}

// plan is what the server does for a world.
type plan struct {
	// served are the Ingresses of our classes, oldest first.
	served []*networkingv1.Ingress
	rules  []httpproxy.Rule
	certs  []certificate
	// needsTLS reports whether the port for TLS is to be open.
	needsTLS bool
	problems []problem
	// services and secrets are the objects that the plan depends on, also those that do not exist.
	services, secrets map[key]bool
}

// certificate names the Secret with the certificate for a host. An empty host stands for all hosts without a certificate of their own.
type certificate struct {
	host   string
	secret key
	about  *networkingv1.Ingress
}

// problem becomes an Event of an Ingress.
type problem struct {
	about           *networkingv1.Ingress
	reason, message string
}

// The reasons of Events.
const (
	conflict      = "Conflict"
	badBackend    = "InvalidBackend"
	badAnnotation = "InvalidAnnotation"
	badPath       = "InvalidPath"
	badSecret     = "InvalidCertificate"
	portTaken     = "PortInUse"
)

// translate turns Ingresses into rules. Where two of them claim the same host and path, the older one gets it.
func translate(w world) plan {
	t := translation{
		world: w, claimed: map[string]*networkingv1.Ingress{}, named: map[string]certificate{},
		plan: plan{services: map[key]bool{}, secrets: map[key]bool{}},
	}
	for _, in := range w.ingresses {
		if w.isServed(in) {
			t.served = append(t.served, in)
		}
	}
	slices.SortFunc(t.served, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	for _, in := range t.served {
		t.add(in)
	}
	return t.plan
}

// isServed reports whether the class of an Ingress names this controller.
func (w *world) isServed(in *networkingv1.Ingress) bool {
	if in.DeletionTimestamp != nil {
		return false
	}
	name := in.Annotations[classAnnotation]
	if in.Spec.IngressClassName != nil {
		name = *in.Spec.IngressClassName
	} else if name != "" && name == w.ownClass {
		return true // the annotation is older than IngressClass objects and needs none
	}
	if name == "" {
		return false
	}
	c := w.class(name)
	return c != nil && c.Spec.Controller == Controller
}

// classAnnotation names the class of an Ingress that does not use the field ingressClassName.
const classAnnotation = "kubernetes.io/ingress.class"

// translation is a plan under construction.
type translation struct {
	world
	plan
	claimed map[string]*networkingv1.Ingress // the Ingress of each rule, by the key of its match
	named   map[string]certificate           // by host
}

func (t *translation) complain(in *networkingv1.Ingress, reason, format string, args ...any) {
	t.problems = append(t.problems, problem{in, reason, fmt.Sprintf(format, args...)})
}

func (t *translation) add(in *networkingv1.Ingress) {
	o, problems := parseOptions(in.Annotations)
	for _, text := range problems {
		t.complain(in, badAnnotation, "%s", text)
	}
	if o.filters.ToTLS {
		if t.hasTLSPort {
			t.needsTLS = true
		} else {
			o.filters.ToTLS = false
			t.complain(in, badAnnotation, "%s: there is no port with TLS to redirect to", annotationRedirect)
		}
	}
	for i := range in.Spec.Rules {
		r := &in.Spec.Rules[i]
		host := strings.ToLower(r.Host)
		if r.HTTP == nil {
			if b := in.Spec.DefaultBackend; b != nil {
				t.rule(in, o, httpproxy.Match{Host: host, Path: "/"}, b)
			}
			continue
		}
		for j := range r.HTTP.Paths {
			p := &r.HTTP.Paths[j]
			if m, ok := t.match(in, host, p); ok {
				t.rule(in, o, m, &p.Backend)
			}
		}
	}
	if b := in.Spec.DefaultBackend; b != nil {
		for _, host := range hostsOf(in) {
			t.rule(in, o, httpproxy.Match{Host: host, Path: "/", Kind: httpproxy.Rest}, b)
		}
	}
	for i := range in.Spec.TLS {
		t.certificate(in, &in.Spec.TLS[i])
	}
}

// hostsOf returns the hosts in the rules of an Ingress, or "", which stands for all hosts, if it has no rules.
func hostsOf(in *networkingv1.Ingress) (out []string) {
	for _, r := range in.Spec.Rules {
		if host := strings.ToLower(r.Host); !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// match returns which requests a path of an Ingress is for.
func (t *translation) match(in *networkingv1.Ingress, host string, p *networkingv1.HTTPIngressPath) (httpproxy.Match, bool) {
	m := httpproxy.Match{Host: host, Path: p.Path, Kind: httpproxy.Prefix}
	if m.Path == "" {
		m.Path = "/"
	}
	if !strings.HasPrefix(m.Path, "/") {
		t.complain(in, badPath, "the path %q does not begin with a slash", p.Path)
		return m, false
	}
	switch {
	case p.PathType != nil && *p.PathType == networkingv1.PathTypeExact:
		m.Kind = httpproxy.Exact
	case p.PathType == nil || *p.PathType == networkingv1.PathTypeImplementationSpecific:
		if strings.ContainsAny(p.Path, `^$*()[]{}|\`) {
			t.complain(in, badPath, "the path %q is taken as it is: there are no patterns in paths; ImplementationSpecific is the same as Prefix here", p.Path)
		}
	}
	return m, true
}

// rule adds a rule, unless another Ingress has one for the same host and path.
func (t *translation) rule(in *networkingv1.Ingress, o options, m httpproxy.Match, b *networkingv1.IngressBackend) {
	k := m.Key()
	if other := t.claimed[k]; other != nil {
		t.complain(in, conflict, "%s is served by the Ingress %s/%s, which is older or says it first", describe(m), other.Namespace,
			other.Name)
		return
	}
	t.claimed[k] = in
	t.rules = append(t.rules, httpproxy.Rule{
		Match: m, Owner: httpproxy.Owner{Namespace: in.Namespace, Name: in.Name}, Backends: t.backends(in, o, b), Filters: o.filters,
	})
}

func describe(m httpproxy.Match) string {
	host := m.Host
	if host == "" {
		host = "*"
	}
	if m.Kind == httpproxy.Rest {
		return "the rest of " + host
	}
	return host + m.Path + " (" + m.Kind.String() + ")"
}

// backends returns where requests go. Without a usable Service there is none: the path stays claimed and answers with an error, so that it
// does not fall to another Ingress.
func (t *translation) backends(in *networkingv1.Ingress, o options, b *networkingv1.IngressBackend) []httpproxy.Backend {
	if b.Resource != nil || b.Service == nil {
		t.complain(in, badBackend, "backends that are not Services are not served here")
		return nil
	}
	k := key{Namespace: in.Namespace, Name: b.Service.Name}
	t.services[k] = true
	svc := t.world.service(k)
	if svc == nil {
		t.complain(in, badBackend, "there is no Service %s", k)
		return nil
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		t.complain(in, badBackend, "the Service %s is of type ExternalName, which has no endpoints; those are not served here", k)
		return nil
	}
	at := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			return false
		}
		if b.Service.Port.Name != "" {
			return p.Name == b.Service.Port.Name
		}
		return p.Port == b.Service.Port.Number
	})
	if at < 0 {
		t.complain(in, badBackend, "the Service %s has no TCP port %s", k, cmp.Or(b.Service.Port.Name, fmt.Sprint(b.Service.Port.Number)))
		return nil
	}
	p := svc.Spec.Ports[at]
	ref := httpproxy.Ref{Namespace: k.Namespace, Service: k.Name, Port: p.Name, Number: p.Port,
		Protocol: cmp.Or(o.protocol, appProtocol(p.AppProtocol), httpproxy.HTTP)}
	ref.Sticky = svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	if o.ca != "" && !t.verify(in, o, &ref) {
		return nil
	}
	return []httpproxy.Backend{{Ref: ref, Weight: 1}}
}

// verify makes the proxy verify the certificates of the endpoints. It returns false where that is not possible, and then the backend is
// not used.
func (t *translation) verify(in *networkingv1.Ingress, o options, ref *httpproxy.Ref) bool {
	if ref.Protocol != httpproxy.HTTPS {
		t.complain(in, badBackend, "%s: endpoints that speak %s cannot prove who they are; %s must say HTTPS", annotationCA, ref.Protocol, annotationProtocol)
		return false
	}
	secret := key{Namespace: in.Namespace, Name: o.ca}
	t.secrets[secret] = true
	var err error
	if ref.CA, err = t.world.trusted(secret); err != nil {
		t.complain(in, badBackend, "%s: the Secret %s: %v", annotationCA, secret, err)
	}
	return err == nil
}

// appProtocol returns the protocol that appProtocol of a Service port names, or "" if the proxy does not know it.
func appProtocol(name *string) httpproxy.Protocol {
	if name == nil {
		return ""
	}
	switch *name {
	case "kubernetes.io/h2c":
		return httpproxy.H2C
	case "grpc":
		return httpproxy.GRPC
	case "https", "kubernetes.io/wss":
		return httpproxy.HTTPS
	}
	return ""
}

// certificate records the Secret of the hosts in one TLS entry.
func (t *translation) certificate(in *networkingv1.Ingress, spec *networkingv1.IngressTLS) {
	t.needsTLS = t.needsTLS || t.hasTLSPort
	if spec.SecretName == "" {
		return // the proxy picks a certificate
	}
	secret := key{Namespace: in.Namespace, Name: spec.SecretName}
	t.secrets[secret] = true
	hosts := spec.Hosts
	if len(hosts) == 0 {
		hosts = hostsOf(in)
	}
	for _, host := range hosts {
		host = strings.ToLower(host)
		c := certificate{host, secret, in}
		if other, ok := t.named[host]; ok {
			if other.secret != secret {
				t.complain(in, conflict, "the certificate for %q comes from the Ingress %s/%s, which is older or says it first", host, other.about.Namespace, other.about.Name)
			}
			continue
		}
		t.named[host] = c
		t.certs = append(t.certs, c)
	}
}
