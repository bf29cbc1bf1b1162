package certificate

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/nodejoin"
)

const (
	// firstLife is how long the first certificate of a node is good, the one that somebody else than the node has asked for,
	// usually the bearer of a bootstrap token. The node replaces it as soon as it is registered.
	firstLife = 24 * time.Hour
	// keepFirst is how much longer than its certificate such a request is kept. While it is there nobody else gets a
	// certificate for the same name, so that two machines never hold the name of a node that does not exist yet.
	keepFirst = 10 * time.Minute
)

// The reasons of a Denied condition.
const (
	reasonNodeExists   = "NodeExists"
	reasonNodeMissing  = "NodeMissing"
	reasonNameTaken    = "NameTaken"
	reasonNameReserved = "NameReserved"
	reasonOtherNode    = "TokenForOtherNode"
)

// claim is what is known about a request for the client certificate of a node when it is decided whether it may have the name.
type claim struct {
	request *certificatesv1.CertificateSigningRequest
	// name is the node that the certificate would be for. Renewal says that the node itself asks.
	name    string
	renewal bool
	// node is the Node of that name, nil if there is none.
	node *corev1.Node
	// others are all certificate signing requests.
	others iter.Seq[*certificatesv1.CertificateSigningRequest]
	now    time.Time
}

// ruling is the decision about a claim: approved, denied for a reason, or, when it is neither, left to people.
type ruling struct {
	approved        bool
	reason, message string
}

// rule decides about a claim of somebody who has the permission to ask. A token joins new names only; a name that exists needs
// the certificate of that node, or the word of an administrator: a token that was made for the node.
func (c *claim) rule() ruling {
	if c.renewal {
		// Whoever got a certificate for a name that never became a Node does not get another one: it ends, and then the name is
		// free again. A Node that is younger than the request may be that of another machine.
		if c.node == nil || c.node.CreationTimestamp.After(c.request.CreationTimestamp.Time) {
			return c.deny(reasonNodeMissing, fmt.Sprintf("There is no Node %q, and certificates are renewed for Nodes that exist. "+
				"Start the agent of the node, which registers it, or join the node again.", c.name))
		}
		if by := c.takenBy(); by != "" {
			return c.deny(reasonNameTaken, fmt.Sprintf("The name %q was given to another machine after this one had got its first certificate (request %s), by an administrator. "+
				"Join with another name (--node).", c.name, by))
		}
		return ruling{approved: true}
	}
	only := tokenFor(c.request)
	switch why := nodejoin.CheckName(c.name); {
	case why != "":
		return c.deny(reasonNameReserved, fmt.Sprintf("No node may be called %q: %s. Choose another name for the node (--node).", c.name, why))
	case only == c.name:
		return ruling{approved: true}
	case only != "":
		return c.deny(reasonOtherNode, fmt.Sprintf("This token was made for node %q and joins no other. "+
			"Make one for this node with \"proa token create --node %s\".", only, c.name))
	case c.node != nil:
		return c.deny(reasonNodeExists, fmt.Sprintf("Node %q exists already, and this token joins new nodes only. "+
			"If this machine is that node and has lost its certificate, make a token for it with \"proa token create --node %s\"; if it is another machine, give it another name (--node).", c.name, c.name))
	}
	for other := range c.others {
		if other.UID != c.request.UID && holdsName(other, c.name, c.now) {
			return c.deny(reasonNameTaken, fmt.Sprintf("The name %q was given to somebody else who joined with a token (request %s) and has not registered the Node yet. "+
				"If this machine shall be that node, make a token for it with \"proa token create --node %s\".", c.name, other.Name, c.name))
		}
	}
	return ruling{approved: true}
}

// takenBy is the request by which somebody else got the name of the node, with a token that was made for the node, after the one
// who asks had got it first; empty if there is none. Who was first with a token for any name may be a stranger, who must not keep
// the name that an administrator has given to another machine. Both are known by the certificates that they were given.
func (c *claim) takenBy() string {
	var first *certificatesv1.CertificateSigningRequest
	for r := range c.others {
		if keepsName(r) && slices.Contains(c.request.Spec.Extra[user.CredentialIDKey], credentialID(r.Status.Certificate)) {
			first = r
		}
	}
	if first == nil {
		return ""
	}
	for r := range c.others {
		if takesName(r) && holdsName(r, c.name, c.now) && !r.CreationTimestamp.Time.Before(first.CreationTimestamp.Time) {
			return r.Name
		}
	}
	return ""
}

// credentialID is how the API server calls whoever shows a certificate, in the extra of the user.
func credentialID(cert []byte) string {
	block, _ := pem.Decode(cert)
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return "X509SHA256=" + hex.EncodeToString(sum[:])
}

// takesName says that a request was made with a token for just this node. It stays for as long as a certificate is good that somebody
// else has got for the name before, so that it is known who was given the name.
func takesName(r *certificatesv1.CertificateSigningRequest) bool {
	request, err := parse(r.Spec.Request)
	if err != nil {
		return false
	}
	node := nodeOf(r, request)
	return node != "" && tokenFor(r) == node
}

// deny denies a request of a node or of the bearer of a token, who waits for the answer. What others ask for is left to people,
// who may know more.
func (c *claim) deny(reason, message string) ruling {
	if c.renewal || nodejoin.IsBootstrap(c.request.Spec.Username, c.request.Spec.Groups) {
		return ruling{reason: reason, message: message}
	}
	return ruling{}
}

// tokenFor is the node that the token was made for with which a request was made; empty for a token that joins any new name, and
// for requests of others. The server has written both the name and the extra of the user; see kinds/certificates.
func tokenFor(r *certificatesv1.CertificateSigningRequest) string {
	if values := r.Spec.Extra[nodejoin.NodeExtra]; strings.HasPrefix(r.Spec.Username, nodejoin.UserPrefix) && len(values) == 1 {
		return values[0]
	}
	return ""
}

// nodeOf is the node that a request wants a client certificate for, from the kubelets' signer; empty for other requests.
func nodeOf(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) string {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return ""
	}
	return strings.TrimPrefix(request.Subject.CommonName, "system:node:")
}

// isFirst says that somebody else than the node asks for its certificate, and without a token that was made for it, so that
// nobody has vouched for whose name this is.
func isFirst(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) bool {
	node := nodeOf(r, request)
	return node != "" && r.Spec.Username != request.Subject.CommonName && tokenFor(r) != node
}

// keepsName says that a request is the record of who has the name of a node, and must stay for as long as that is good.
func keepsName(r *certificatesv1.CertificateSigningRequest) bool {
	request, err := parse(r.Spec.Request)
	return err == nil && isFirst(r, request)
}

// holdsName says that a request was approved for somebody who asked for the certificate of a node, and that the certificate is
// good, or may still come.
func holdsName(r *certificatesv1.CertificateSigningRequest, name string, now time.Time) bool {
	if !has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateDenied) || failed(r) {
		return false
	}
	request, err := parse(r.Spec.Request)
	if err != nil || nodeOf(r, request) != name || r.Spec.Username == request.Subject.CommonName {
		return false
	}
	until, issued := expiry(r.Status.Certificate)
	return !issued || now.Before(until.Add(keepFirst))
}

// longest is the longest life of the certificate of a request.
func (config *Config) longest(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) time.Duration {
	// What a person has approved is theirs to judge.
	if isFirst(r, request) && isAutoApproved(r) {
		return min(config.Life, firstLife)
	}
	return config.Life
}

func isAutoApproved(r *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return c.Reason == autoApproved
		}
	}
	return false
}

// judge decides about a request that has the permission, from what is stored now rather than from what the views show.
func judge(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, renewal bool) (ruling, error) {
	wanted, err := parse(request.Spec.Request)
	if err != nil {
		return ruling{}, nil //nolint:nilerr // what cannot be read is left to people
	}
	// This waits until the cache has what is stored, so that the list below shows every approval.
	if _, err := c.Get(ctx, gr.CertificateSigningRequests, "", request.Name, ""); err != nil {
		return ruling{}, err
	}
	what := claim{
		request: request, name: nodeOf(request, wanted), renewal: renewal, now: time.Now(),
		others: control.List[*certificatesv1.CertificateSigningRequest](c, gr.CertificateSigningRequests, ""),
	}
	if len(validation.IsDNS1123Subdomain(what.name)) > 0 {
		return what.rule(), nil // there is no Node of such a name
	}
	o, err := c.Get(ctx, gr.Nodes, "", what.name, "")
	if err != nil && !apierrors.IsNotFound(err) {
		return ruling{}, err
	}
	what.node, _ = o.(*corev1.Node)
	return what.rule(), nil
}
