package run

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"proa.dev/control/satoken"
	"proa.dev/kinds/flowcontrol"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/localpath"
	"proa.dev/server"
	"proa.dev/server/authn"
	"proa.dev/server/metrics"
	"proa.dev/server/openapi"
)

// identities is hop 2 with the answers the pipeline wants.
type identities struct{ *authn.Authenticator }

func (s *Server) authenticator(certificate func(left time.Duration)) (identities, error) {
	others, err := s.tokens()
	if err != nil {
		return identities{}, err
	}
	a, err := authn.New(authn.Config{
		ClientCAs: s.pki.CA().Pool, FrontProxyCAs: s.pki.FrontProxyCA().Pool,
		Issuers: []string{s.Issuer}, SigningKey: s.pki.ServiceAccountKey(), VerifyKeys: s.pki.ServiceAccountPublicKeys(),
		Lookup: server.Accounts{State: s.state}, Tokens: others,
		Certificate: certificate,
		Anonymous:   func(r *http.Request) bool { return (*s.outside.anonymous.Load())(r) },
		LegacyUsed: func(ctx context.Context, secret *corev1.Secret, day string) {
			satoken.Used(s.front.Client(apiserver()), s.log)(ctx, secret, day)
		},
	})
	return identities{a}, err
}

// Review answers a TokenReview.
func (a identities) Review(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	who, audiences, ok, err := a.ReviewToken(ctx, spec.Token, spec.Audiences)
	st := authenticationv1.TokenReviewStatus{Authenticated: ok && err == nil}
	if err != nil {
		st.Error = err.Error()
	}
	if !st.Authenticated {
		return st
	}
	st.Audiences = audiences
	st.User = authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	if len(who.GetExtra()) > 0 {
		st.User.Extra = map[string]authenticationv1.ExtraValue{}
		for k, v := range who.GetExtra() {
			st.User.Extra[k] = v
		}
	}
	return st
}

// Issue answers a TokenRequest.
func (a identities) Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error {
	granted, err := a.TokenRequest(ctx, account.Namespace, account.Name, request)
	if err != nil {
		return err
	}
	*request = *granted.Request
	return nil
}

// Version is what /version says. The GitVersion is that of the API proa serves.
func Version() *apiversion.Info {
	return &apiversion.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36",
		GitVersion: "v1.37.1+proa", GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

var errStarting = errors.New("the server is still starting")

// endpoints are the paths that are not resources.
func (s *Server) endpoints(auth identities, counts http.Handler) http.Handler {
	docs := openapi.New(openapi.Options{Resources: described(s.defs), Groups: s.describedGroups, Version: "1.37"}).Handler(s.log)
	health := metrics.NewHealth()
	e := &server.Endpoints{
		Version: Version(), State: s.state, Remote: s.aggregator.Versions,
		Checks: s.checks(), Observe: health.Observe,
		Others: map[string]http.Handler{
			"/metrics": counts, "/metrics/slis": health.Handler(),
			FailingPath:   s.serveFailing(s.checks()),
			"/openapi/v2": docs, "/openapi/v3": docs, "/openapi/v3/": docs,
			authn.OpenIDConfigPath: http.HandlerFunc(auth.ServeOpenIDConfig),
			authn.JWKSPath:         http.HandlerFunc(auth.ServeJWKS),
		},
	}
	return e.Handler()
}

// metrics are the numbers of the server.
func (s *Server) metrics() *metrics.Metrics {
	v := Version()
	return metrics.New(metrics.Gauges{
		InFlight: func() (int64, int64) { return s.front.InFlight() },
		Memory:   func() (int64, int64, int64) { return s.front.RequestMemory() },
		Objects:  s.state.Counts, Unreadable: s.state.Unreadable, Version: v.GitVersion, Major: v.Major, Minor: v.Minor,
		StoreSize: func() float64 {
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			defer stop()
			n, err := s.store.Size(ctx)
			if err != nil {
				return 0
			}
			return float64(n)
		},
	})
}

func counted(o server.Observation) metrics.Request {
	return metrics.Request{
		Verb: o.Verb, Group: o.Group, Version: o.Version, Resource: o.Resource, Subresource: o.Sub, Scope: o.Scope,
		DryRun: o.DryRun, Code: o.Code, Bytes: o.Bytes, Took: o.Took,
	}
}

// described is the table of resources as OpenAPI wants it.
func described(defs []*kind.Def) []openapi.Resource {
	out := make([]openapi.Resource, 0, len(defs))
	for _, d := range defs {
		r := openapi.Resource{
			Group: d.Group, Version: d.Version, Kind: d.Kind, Plural: d.Plural, Singular: d.Singular,
			Namespaced: d.Scope == kind.Namespaced, Verbs: d.Verbs, DeleteReturnsObject: d.Storage().Deletion.Returns && d.Plural != "namespaces",
		}
		for _, s := range d.Subs {
			sub := openapi.Sub{Name: s.Name, Kind: d.Kind, Verbs: s.Verbs}
			if s.Body != nil {
				sub.Group, sub.Version, sub.Kind = s.Body.Group, s.Body.Version, s.Body.Kind
			}
			r.Subresources = append(r.Subresources, sub)
		}
		out = append(out, r)
	}
	return out
}

// registrations are the objects that say what the server serves and how it shares itself out.
func (s *Server) registrations() []server.Seedling {
	var out []server.Seedling
	for _, o := range s.builtInAPIServices() {
		out = append(out, server.Seedling{Resource: schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}, Object: o})
	}
	for _, o := range flowcontrol.Schemas() {
		out = append(out, server.Seedling{Resource: schema.GroupResource{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}, Object: o})
	}
	for _, o := range flowcontrol.Levels() {
		out = append(out, server.Seedling{Resource: schema.GroupResource{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}, Object: o})
	}
	if s.Node.Name != "" {
		out = append(out, server.Seedling{Resource: gr.Services, Object: s.namesService()}, server.Seedling{Resource: gr.StorageClasses, Object: localpath.Class()})
	}
	return out
}

// namesService is the Service under whose address Pods ask for names. Every node answers there itself, so it has no endpoints.
func (s *Server) namesService() *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-dns", Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "DNS"},
		},
		Spec: corev1.ServiceSpec{IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), Ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
		}},
	}
	for _, p := range s.ServiceCIDRs {
		family := corev1.IPv4Protocol
		if p.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		out.Spec.ClusterIPs, out.Spec.IPFamilies = append(out.Spec.ClusterIPs, NamesAt(p).String()), append(out.Spec.IPFamilies, family)
	}
	if out.Spec.ClusterIP = out.Spec.ClusterIPs[0]; len(out.Spec.ClusterIPs) > 1 {
		out.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	return out
}

// NamesAt is the address of a range of Services that the cluster's DNS has.
func NamesAt(p netip.Prefix) netip.Addr {
	ip := p.Masked().Addr()
	for range 10 {
		ip = ip.Next()
	}
	return ip
}
