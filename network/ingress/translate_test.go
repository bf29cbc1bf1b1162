package ingress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/network/httpproxy"
	"proa.dev/network/proxysync"
)

// filters are the filters that annotations can set.
type filters struct {
	ToTLS   bool
	Rewrite string
	Timeout time.Duration
	MaxBody int64
}

// objects are the objects of one test case.
type objects struct {
	ingresses []*networkingv1.Ingress
	classes   map[string]*networkingv1.IngressClass
	services  map[key]*corev1.Service
	nodes     []*corev1.Node
}

// parse reads YAML documents. The namespace of an object is default unless the document names one.
func parse(t *testing.T, text string) objects {
	t.Helper()
	out := objects{classes: map[string]*networkingv1.IngressClass{}, services: map[key]*corev1.Service{}}
	read := func(doc string, into metav1.Object) {
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if into.GetNamespace() == "" {
			into.SetNamespace("default")
		}
	}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var what metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &what); err != nil {
			t.Fatal(err)
		}
		switch what.Kind {
		case "Ingress":
			in := &networkingv1.Ingress{}
			read(doc, in)
			out.ingresses = append(out.ingresses, in)
		case "IngressClass":
			c := &networkingv1.IngressClass{}
			read(doc, c)
			out.classes[c.Name] = c
		case "Service":
			s := &corev1.Service{}
			read(doc, s)
			out.services[proxysync.KeyOf(s)] = s
		case "Node":
			n := &corev1.Node{}
			read(doc, n)
			out.nodes = append(out.nodes, n)
		case "":
		default:
			t.Fatalf("what is a %s?", what.Kind)
		}
	}
	return out
}

// TestTranslate checks the rules that the Ingresses in testdata/rules become. Every case has the class proa and the Service web.
func TestTranslate(t *testing.T) {
	textcase.Decide(t, "testdata/rules/*.txt", "=>", func(t *testing.T, in string) string {
		t.Helper()
		o := parse(t, "{kind: IngressClass, metadata: {name: proa}, spec: {controller: proa.dev/ingress}}\n---\n"+
			"{kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}\n---\n"+in)
		p := translate(world{
			ingresses: o.ingresses, ownClass: "proa", hasTLSPort: !strings.Contains(in, "# no TLS"),
			class:   func(name string) *networkingv1.IngressClass { return o.classes[name] },
			service: func(k key) *corev1.Service { return o.services[k] },
			trusted: func(k key) (string, error) {
				if k.Name != "ca" {
					return "", errors.New("there is none")
				}
				return "PEM of " + k.String(), nil
			},
		})
		return show(p)
	})
}

func show(p plan) string {
	var b strings.Builder
	for _, r := range p.rules {
		fmt.Fprintf(&b, "%s: %s", r.Owner, describe(r.Match))
		for _, to := range r.Backends {
			fmt.Fprintf(&b, " -> %s", to.Ref)
			if to.Ref.Port != "" {
				fmt.Fprintf(&b, " (%s)", to.Ref.Port)
			}
			if to.Ref.Sticky {
				b.WriteString(" sticky")
			}
			if to.Ref.CA != "" {
				fmt.Fprintf(&b, " verified by %s", to.Ref.CA)
			}
		}
		if f := (filters{r.ToTLS, r.Rewrite, r.Timeout, r.MaxBody}); f != (filters{}) {
			fmt.Fprintf(&b, " %+v", f)
		}
		b.WriteString("\n")
	}
	for _, c := range p.certs {
		fmt.Fprintf(&b, "certificate for %q from %s\n", c.host, c.secret)
	}
	if p.needsTLS {
		b.WriteString("with TLS\n")
	}
	for _, x := range p.problems {
		fmt.Fprintf(&b, "%s/%s %s: %s\n", x.about.Namespace, x.about.Name, x.reason, x.message)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// TestStatus checks the cases of testdata/status.txt: the status that the node "here" writes.
func TestStatus(t *testing.T) {
	textcase.Decide(t, "testdata/status.txt", "=>", func(t *testing.T, in string) string {
		t.Helper()
		o := parse(t, in)
		var ports []int32
		for line := range strings.Lines(in) {
			if text, ok := strings.CutPrefix(line, "# open: "); ok {
				for word := range strings.FieldsSeq(text) {
					var n int32
					if _, err := fmt.Sscan(word, &n); err != nil {
						t.Fatal(err)
					}
					ports = append(ports, n)
				}
			}
		}
		text, err := yaml.Marshal(statusOf(o.ingresses[0].Status.LoadBalancer.Ingress,
			nodeAddresses{o.nodes, "here", []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}, ports))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	})
}

// TestHostile checks that texts in an Ingress have no effect beyond their field: whatever is in hosts, paths and
// annotations, invalid values are left out.
func TestHostile(t *testing.T) {
	nasty := []string{
		"/\nproxy_pass http://evil;", "/{{ .Secrets }}", "/$(cat /etc/passwd)", "/}\nserver { listen 8080; }", "/`id`", "/\x00",
		"/%0d%0aX-Evil:%20yes",
		"/../../etc/passwd", "/a/../b", "/%2e%2e/b", "http://evil/", "//evil.example.com", "/" + strings.Repeat("a/", 5000), "/a?b=c#d",
		`/"; lua_code "`, "/*", "",
	}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, text := range nasty {
		in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", Annotations: map[string]string{
			classAnnotation: "proa", "nginx.ingress.kubernetes.io/configuration-snippet": text, annotationPrefix + "snippet": text,
			annotationRedirect: text, annotationTimeout: text, annotationMaxBody: text, annotationProtocol: text, annotationRewrite: text,
		}}}
		kind := networkingv1.PathTypeImplementationSpecific
		in.Spec.Rules = []networkingv1.IngressRule{{Host: strings.TrimPrefix(text, "/"),
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: text, PathType: &kind,
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web",
						Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
			}}}}
		p := translate(world{ingresses: []*networkingv1.Ingress{in}, ownClass: "proa", hasTLSPort: true,
			service: func(key) *corev1.Service { return svc }})
		for _, r := range p.rules {
			if r.Filters.ToTLS || r.Filters.Timeout != 0 || r.Filters.MaxBody != 0 || r.Filters.Rewrite != "" &&
				!isCanonicalPath(r.Filters.Rewrite) {
				t.Errorf("%.60q became %+v", text, r.Filters)
			}
			if want := map[bool]string{true: "/", false: text}[text == ""]; r.Path != want || r.Kind != httpproxy.Prefix ||
				r.Host != strings.ToLower(strings.TrimPrefix(text, "/")) {
				t.Errorf("%.60q became the path %.60q of %.60q", text, r.Path, r.Host)
			}
			if want := (httpproxy.Ref{Namespace: "default", Service: "web", Number: 80, Protocol: httpproxy.HTTP}); len(r.Backends) != 1 ||
				r.Backends[0].Ref != want {
				t.Errorf("%.60q leads to %v", text, r.Backends)
			}
		}
	}
}
