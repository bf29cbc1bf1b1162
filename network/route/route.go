// Package route is a reverse proxy for HTTP: rules that say which requests go where, and the way of a request to an endpoint
// and back. It knows nothing of Kubernetes. Package ingress makes rules of Ingresses; whoever makes them of something else
// needs nothing here but more rules.
//
// The rules are a Table, made once and never changed: to change something is to make another and to Swap it in. The endpoints
// are not in it. They are in Pools, which outlive tables, so that an endpoint that comes or goes costs what it is, and
// connections stay. A rule is data; there is no language in which a rule could be written that says more than its fields.
package route

import (
	"cmp"
	"strconv"
	"time"
)

// Rule leads requests that match to backends.
type Rule struct {
	Match
	// Owner is on whose behalf the rule is there. Requests are counted by it.
	Owner Owner
	// Backends are where requests go, by their weights. Without any, they are refused as those of a Service without endpoints.
	Backends []Backend
	// Refusal is the code that answers requests when Backends is empty; 0 stands for 503.
	Refusal int
	Filters
}

// Owner names the object that a rule comes from.
type Owner struct{ Namespace, Name string }

func (o Owner) String() string { return o.Namespace + "/" + o.Name }

// Kind is how the path of a rule is compared.
type Kind int

const (
	// Prefix matches paths that begin with the elements of the rule's.
	Prefix Kind = iota
	// Exact matches one path.
	Exact
	// Rest matches what no other rule of any host matches.
	Rest
)

func (k Kind) String() string { return [...]string{"prefix", "exact", "rest"}[k] }

// Match says which requests a rule is for. Of several rules that match, the one with the more exact host is taken, then an
// exact path, then the longer prefix, then one with a method, then the one with more headers, then with more of the query, then the
// first.
type Match struct {
	// Host is a name in lower case; "*.example.com" stands for every name with one more label, or with any number of labels more in a
	// table of AnyDepth; the empty text stands for all.
	Host string
	Path string
	Kind Kind
	// LastElement is what the path must end with behind its last slash; empty for anything. gRPC methods of any service need it.
	LastElement string
	// Method is empty for all. Headers and Query must all be there, with exactly these values.
	Method         string
	Headers, Query []Pair
}

// Pair is a name and its value.
type Pair struct{ Name, Value string }

// narrower orders matches of the same host and path: negative when m comes before o.
func (m *Match) narrower(o *Match) int {
	set := func(text string) int { return min(len(text), 1) }
	return cmp.Or(
		cmp.Compare(len(o.LastElement), len(m.LastElement)), cmp.Compare(set(o.Method), set(m.Method)),
		cmp.Compare(len(o.Headers), len(m.Headers)), cmp.Compare(len(o.Query), len(m.Query)),
	)
}

// Protocol is what endpoints speak.
type Protocol string

// The protocols. GRPC is H2C by another name: HTTP/2 without TLS, known beforehand.
const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS"
	H2C   Protocol = "H2C"
	GRPC  Protocol = "GRPC"
)

// Ref names the endpoints of a port of a Service, and how they are spoken to. There is one Pool for each.
type Ref struct {
	Namespace, Service string
	// Port is the name that the port of the Service has; often empty.
	Port     string
	Number   int32
	Protocol Protocol
	// Sticky sends a client, by its address, to the same endpoint as long as that is there.
	Sticky bool
	// CA are the certificates, as PEM, of which one must vouch for an HTTPS endpoint by the name SERVICE.NAMESPACE.svc. If empty,
	// endpoints are not asked who they are.
	CA string
	// ServerName takes the place of SERVICE.NAMESPACE.svc. SystemCA trusts the certificate authorities of this machine instead of CA.
	ServerName string
	SystemCA   bool
	// AltNames are names of which the certificate must have one, separated by spaces, instead of the ServerName; with "://" in it a name
	// is a URI.
	AltNames string
	// Identity are the certificate and key, as PEM, that endpoints are shown; empty for none.
	Identity string
}

func (r Ref) String() string {
	return r.Namespace + "/" + r.Service + ":" + strconv.Itoa(int(r.Number)) + " " + string(r.Protocol)
}

// Backend is one of the places that requests of a rule go to.
type Backend struct {
	Ref    Ref
	Weight int
	// Broken says that there is no such backend: its share of the requests is answered with 500.
	Broken bool
	// Request and Response change the headers of requests that go here, and of their answers.
	Request, Response HeaderChange
}

// HeaderChange says how headers are changed: some are set, then some added, then some removed.
type HeaderChange struct {
	Set, Add []Pair
	Remove   []string
}

// Filters say what is done to a request on its way.
type Filters struct {
	// ToTLS sends requests that came without TLS to the same address with it.
	ToTLS bool
	// Rewrite takes the place of the part of the path that matched, FullPath that of the whole path, Hostname that of the host; empty
	// leaves them alone.
	Rewrite, FullPath, Hostname string
	// Timeout is how long an endpoint may take until it begins to answer, MaxBody how many bytes a request may have; 0 for
	// any.
	Timeout time.Duration
	MaxBody int64
	// BackendTimeout is how long each endpoint that is tried may take until it begins to answer; 0 for any.
	BackendTimeout time.Duration
	// Request and Response change headers.
	Request, Response HeaderChange
	// Redirect answers requests with another address; nil sends them to backends.
	Redirect *Redirect
	// Mirrors get copies of requests, whose answers nobody reads.
	Mirrors []Mirror
	CORS    *CORS // nil leaves that to the backends
	// Retry says which answers of endpoints are not passed on but asked for again; nil for none.
	Retry *Retry
}

// Redirect says where a client shall ask instead. What is empty stays as the client has said it.
type Redirect struct {
	Scheme, Hostname string
	Port             int
	// Prefix takes the place of the part of the path that matched, FullPath that of the whole path.
	Prefix, FullPath string
	Code             int // 0 for 302
}

// Mirror gets copies of Numerator of Denominator requests.
type Mirror struct {
	Ref                    Ref
	Numerator, Denominator int
}

// Retry says which requests are sent again.
type Retry struct {
	Codes    []int
	Attempts int
	Backoff  time.Duration
}
