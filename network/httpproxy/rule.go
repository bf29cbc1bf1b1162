// Package httpproxy is a reverse proxy for HTTP: rules that choose a backend for a request, and the forwarding of
// requests to endpoints. It knows nothing of Kubernetes. Package ingress makes rules from Ingresses, package gateway
// from routes of the Gateway API.
//
// The rules form a Table, which is immutable: a change makes a new table and swaps it in. The endpoints are not in the
// table but in Pools, which outlive tables, so that a change of an endpoint is cheap and connections stay open. A rule
// is plain data; there are no regular expressions or scripts.
package httpproxy

import (
	"cmp"
	"strconv"
	"time"
)

// Rule sends requests that match to backends.
type Rule struct {
	Match
	// Owner is the object that the rule comes from. Requests are counted by it.
	Owner Owner
	// Backends are where requests go, by their weights. Without any, requests get the status code of Refusal.
	Backends []Backend
	// Refusal is the status code when Backends is empty; 0 stands for 503.
	Refusal int
	Filters
}

// Owner names the object that a rule comes from.
type Owner struct{ Namespace, Name string }

func (o Owner) String() string { return o.Namespace + "/" + o.Name }

// Kind is how the path of a rule is matched.
type Kind int

const (
	// Prefix matches paths that start with the elements of the path of the rule.
	Prefix Kind = iota
	// Exact matches one path.
	Exact
	// Rest matches requests that no other rule of any host matches.
	Rest
)

func (k Kind) String() string { return [...]string{"prefix", "exact", "rest"}[k] }

// Match is which requests a rule is for. Of several rules that match, the one with the most specific host wins, then an
// exact path, then the longer prefix, then one with a method, then the one with more headers, then with more query
// parameters, then the first.
type Match struct {
	// Host is a name in lower case. "*.example.com" matches names with one more label, or with any number of labels
	// more in a table of AnyDepth. Empty matches all.
	Host string
	Path string
	Kind Kind
	// LastElement is the last element of the path; empty for any. It matches a gRPC method of any service.
	LastElement string
	// Method is empty for all. A request must have all of Headers and Query, with exactly these values.
	Method         string
	Headers, Query []Pair
}

// Pair is a name and its value.
type Pair struct{ Name, Value string }

// narrower orders matches of the same host and path: negative when m takes precedence over o.
func (m *Match) narrower(o *Match) int {
	set := func(text string) int { return min(len(text), 1) }
	return cmp.Or(
		cmp.Compare(len(o.LastElement), len(m.LastElement)), cmp.Compare(set(o.Method), set(m.Method)),
		cmp.Compare(len(o.Headers), len(m.Headers)), cmp.Compare(len(o.Query), len(m.Query)),
	)
}

// Protocol is the protocol of endpoints.
type Protocol string

// The protocols. GRPC and H2C are both HTTP/2 without TLS, with prior knowledge.
const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS"
	H2C   Protocol = "H2C"
	GRPC  Protocol = "GRPC"
)

// Ref names a backend: the endpoints of a Service port, and how the proxy connects to them. There is one Pool for each.
type Ref struct {
	Namespace, Service string
	// Port is the name of the port of the Service; often empty.
	Port     string
	Number   int32
	Protocol Protocol
	// Sticky sends a client, by its address, to the same endpoint as long as that exists.
	Sticky bool
	// CA are the CA certificates, as PEM, that verify HTTPS endpoints by the name SERVICE.NAMESPACE.svc. If empty,
	// endpoints are not verified.
	CA string
	// ServerName replaces the name SERVICE.NAMESPACE.svc. SystemCA trusts the certificate authorities of this machine
	// instead of CA.
	ServerName string
	SystemCA   bool
	// AltNames are subject alternative names, separated by spaces, of which the certificate must have one, instead of
	// the ServerName. A name with "://" is a URI.
	AltNames string
	// Identity is the client certificate and key for endpoints, as PEM; empty for none.
	Identity string
}

func (r Ref) String() string {
	return r.Namespace + "/" + r.Service + ":" + strconv.Itoa(int(r.Number)) + " " + string(r.Protocol)
}

// Backend is one destination for the requests of a rule.
type Backend struct {
	Ref    Ref
	Weight int
	// Broken means that the backend cannot be used: its share of the requests is answered with 500.
	Broken bool
	// Request and Response change the headers of requests to this backend and of their responses.
	Request, Response HeaderChange
}

// HeaderChange changes headers: some are set, then some added, then some removed.
type HeaderChange struct {
	Set, Add []Pair
	Remove   []string
}

// Filters are the changes to requests and responses of a rule.
type Filters struct {
	// ToTLS redirects requests without TLS to HTTPS.
	ToTLS bool
	// Rewrite replaces the part of the path that matched, FullPath the whole path, Hostname the host; empty changes
	// nothing.
	Rewrite, FullPath, Hostname string
	// Timeout is how long the request may take until the response begins, MaxBody the largest body of a request; 0 for
	// no limit.
	Timeout time.Duration
	MaxBody int64
	// BackendTimeout is how long each attempt may take until the response begins; 0 for no limit.
	BackendTimeout time.Duration
	// Request and Response change headers.
	Request, Response HeaderChange
	// Redirect answers requests with a redirect; nil sends them to backends.
	Redirect *Redirect
	// Mirrors get copies of requests; their responses are discarded.
	Mirrors []Mirror
	CORS    *CORS // nil leaves CORS to the backends
	// Retry is which responses of endpoints are retried; nil for none.
	Retry *Retry
}

// Redirect is the target of a redirect. Empty fields keep the value of the request.
type Redirect struct {
	Scheme, Hostname string
	Port             int
	// Prefix replaces the part of the path that matched, FullPath the whole path.
	Prefix, FullPath string
	Code             int // 0 for 302
}

// Mirror gets copies of Numerator out of Denominator requests.
type Mirror struct {
	Ref                    Ref
	Numerator, Denominator int
}

// Retry is which requests are sent again.
type Retry struct {
	Codes    []int
	Attempts int
	Backoff  time.Duration
}
