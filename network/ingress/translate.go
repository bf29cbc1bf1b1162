package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/network/route"
)

// key names an object in a namespace.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// world is what rules are made of.
type world struct {
	ingresses []*networkingv1.Ingress
	// class and service find objects; nil where there is none.
	class   func(name string) *networkingv1.IngressClass
	service func(k key) *corev1.Service
	// trusted are the certificates, as PEM, that a Secret says to trust.
	trusted func(k key) (string, error)
	// own is the name of the class that needs no object to be ours.
	own string
	// secure says that there is a port with TLS.
	secure bool
}

// plan is what follows from a world.
type plan struct {
	// ours are the Ingresses that are served here, oldest first.
	ours  []*networkingv1.Ingress
	rules []route.Rule
	certs []certificate
	// secure says that a port with TLS is needed.
	secure   bool
	problems []problem
	// services and secrets are what the plan would change with, also those that are missing.
	services, secrets map[key]bool
}

// certificate is which Secret has the certificate for a host; an empty host stands for all that have none.
type certificate struct {
	host   string
	secret key
	about  *networkingv1.Ingress
}

// problem is something that people should know about an Ingress.
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

// translate makes rules of Ingresses. What two of them want belongs to the older one.
func translate(w world) plan {
	t := translation{
		world: w, taken: map[string]*networkingv1.Ingress{}, named: map[string]certificate{},
		plan: plan{services: map[key]bool{}, secrets: map[key]bool{}},
	}
	for _, in := range w.ingresses {
		if w.isOurs(in) {
			t.ours = append(t.ours, in)
		}
	}
	slices.SortFunc(t.ours, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, in := range t.ours {
		t.add(in)
	}
	return t.plan
}

// isOurs says that an Ingress is of a class of ours.
func (w *world) isOurs(in *networkingv1.Ingress) bool {
	if in.DeletionTimestamp != nil {
		return false
	}
	name := in.Annotations[classAnnotation]
	if in.Spec.IngressClassName != nil {
		name = *in.Spec.IngressClassName
	} else if name != "" && name == w.own {
		return true // nobody had to make a class when the annotation was all there was
	}
	if name == "" {
		return false
	}
	c := w.class(name)
	return c != nil && c.Spec.Controller == Controller
}

// classAnnotation is the annotation that named the class before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// translation is a plan that is being made.
type translation struct {
	world
	plan
	taken map[string]*networkingv1.Ingress // by the key of a match
	named map[string]certificate           // by host
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
		if t.world.secure {
			t.plan.secure = true
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
				t.rule(in, o, route.Match{Host: host, Path: "/"}, b)
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
			t.rule(in, o, route.Match{Host: host, Path: "/", Kind: route.Rest}, b)
		}
	}
	for i := range in.Spec.TLS {
		t.certificate(in, &in.Spec.TLS[i])
	}
}

// hostsOf are the hosts that the rules of an Ingress are about; without rules, all.
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

// match is which requests a path is for.
func (t *translation) match(in *networkingv1.Ingress, host string, p *networkingv1.HTTPIngressPath) (route.Match, bool) {
	m := route.Match{Host: host, Path: p.Path, Kind: route.Prefix}
	if m.Path == "" {
		m.Path = "/"
	}
	if !strings.HasPrefix(m.Path, "/") {
		t.complain(in, badPath, "the path %q does not begin with a slash", p.Path)
		return m, false
	}
	switch {
	case p.PathType != nil && *p.PathType == networkingv1.PathTypeExact:
		m.Kind = route.Exact
	case p.PathType == nil || *p.PathType == networkingv1.PathTypeImplementationSpecific:
		if strings.ContainsAny(p.Path, `^$*()[]{}|\`) {
			t.complain(in, badPath, "the path %q is taken as it is: there are no patterns in paths; ImplementationSpecific is the same as Prefix here", p.Path)
		}
	}
	return m, true
}

// rule adds one, unless somebody else has it.
func (t *translation) rule(in *networkingv1.Ingress, o options, m route.Match, b *networkingv1.IngressBackend) {
	k := m.Key()
	if other := t.taken[k]; other != nil {
		t.complain(in, conflict, "%s is served by the Ingress %s/%s, which is older or says it first", shown(m), other.Namespace, other.Name)
		return
	}
	t.taken[k] = in
	t.rules = append(t.rules, route.Rule{
		Match: m, Owner: route.Owner{Namespace: in.Namespace, Name: in.Name}, Backends: t.backends(in, o, b), Filters: o.filters,
	})
}

func shown(m route.Match) string {
	host := m.Host
	if host == "" {
		host = "*"
	}
	if m.Kind == route.Rest {
		return "the rest of " + host
	}
	return host + m.Path + " (" + m.Kind.String() + ")"
}

// backends are where requests go; none if that cannot be: the path stays taken, and does not fall to somebody else.
func (t *translation) backends(in *networkingv1.Ingress, o options, b *networkingv1.IngressBackend) []route.Backend {
	if b.Resource != nil || b.Service == nil {
		t.complain(in, badBackend, "backends that are not Services are not served here")
		return nil
	}
	k := key{in.Namespace, b.Service.Name}
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
	ref := route.Ref{Namespace: k.namespace, Service: k.name, Port: p.Name, Number: p.Port, Protocol: cmp.Or(o.protocol, spoken(p.AppProtocol), route.HTTP)}
	ref.Sticky = svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	if o.ca != "" && !t.verify(in, o, &ref) {
		return nil
	}
	return []route.Backend{{Ref: ref, Weight: 1}}
}

// verify makes endpoints prove who they are. Where they cannot, nobody is asked.
func (t *translation) verify(in *networkingv1.Ingress, o options, ref *route.Ref) bool {
	if ref.Protocol != route.HTTPS {
		t.complain(in, badBackend, "%s: endpoints that speak %s cannot prove who they are; %s must say HTTPS", annotationCA, ref.Protocol, annotationProtocol)
		return false
	}
	secret := key{in.Namespace, o.ca}
	t.secrets[secret] = true
	var err error
	if ref.CA, err = t.world.trusted(secret); err != nil {
		t.complain(in, badBackend, "%s: the Secret %s: %v", annotationCA, secret, err)
	}
	return err == nil
}

// spoken is what the port of a Service says about its protocol, if it is one that is known.
func spoken(said *string) route.Protocol {
	if said == nil {
		return ""
	}
	switch *said {
	case "kubernetes.io/h2c":
		return route.H2C
	case "grpc":
		return route.GRPC
	case "https", "kubernetes.io/wss":
		return route.HTTPS
	}
	return ""
}

// certificate notes which Secret is for which hosts.
func (t *translation) certificate(in *networkingv1.Ingress, spec *networkingv1.IngressTLS) {
	t.plan.secure = t.plan.secure || t.world.secure
	if spec.SecretName == "" {
		return // TLS, with whatever certificate there is
	}
	secret := key{in.Namespace, spec.SecretName}
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
