// Package route is a reverse proxy for HTTP: rules that say which requests go where, and the way of a request to an endpoint
// and back. It knows nothing of Kubernetes. Package ingress makes rules of Ingresses; whoever makes them of something else
// needs nothing here but more rules.
//
// The rules are a Table, made once and never changed: to change something is to make another and to Swap it in. The endpoints
// are not in it. They are in Pools, which outlive tables, so that an endpoint that comes or goes costs what it is, and
// connections stay. A rule is data; there is no language in which a rule could be written that says more than its fields.
package route

import (
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
// exact path, then the longer prefix, then the one with more conditions, then the first.
type Match struct {
	// Host is a name in lower case; "*.example.com" stands for every name with one more label, the empty text for all.
	Host string
	Path string
	Kind Kind
	// Method is empty for all. Headers and Query must all be there, with exactly these values.
	Method         string
	Headers, Query []Pair
}

// Pair is a name and its value.
type Pair struct{ Name, Value string }

func (m *Match) conditions() int {
	n := len(m.Headers) + len(m.Query)
	if m.Method != "" {
		n++
	}
	return n
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
}

func (r Ref) String() string {
	return r.Namespace + "/" + r.Service + ":" + strconv.Itoa(int(r.Number)) + " " + string(r.Protocol)
}

// Backend is one of the places that requests of a rule go to.
type Backend struct {
	Ref    Ref
	Weight int
}

// Filters say what is done to a request on its way.
type Filters struct {
	// ToTLS sends requests that came without TLS to the same address with it.
	ToTLS bool
	// Rewrite takes the place of the part of the path that matched; empty leaves the path alone.
	Rewrite string
	// Timeout is how long an endpoint may take until it begins to answer, MaxBody how many bytes a request may have; 0 for
	// any.
	Timeout time.Duration
	MaxBody int64
}
