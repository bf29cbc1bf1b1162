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
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodejoin"
)

const (
	// firstLife is how long the first certificate of a node is valid, which is requested not by the node itself but usually
	// with a bootstrap token. The node replaces it as soon as it is registered.
	firstLife = 24 * time.Hour
	// keepFirst is how much longer than its certificate such a request is kept. While it exists, no other machine gets a
	// certificate for the same name, so that two machines never hold the name of a node that is not registered yet.
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

// nameClaim is a request for the client certificate of a node, with the objects that decide whether it may have the name.
type nameClaim struct {
	request *certificatesv1.CertificateSigningRequest
	// name is the node of the certificate. renewal is true if the node itself makes the request.
	name    string
	renewal bool
	// node is the Node of that name; nil if there is none.
	node *corev1.Node
	// others are all certificate signing requests.
	others iter.Seq[*certificatesv1.CertificateSigningRequest]
	now    time.Time
}

// decision is the decision about a claim: approved, denied for a reason or, if neither, left to administrators.
type decision struct {
	approved        bool
	reason, message string
}

// decide decides about a claim of a requestor that has the permission. A token for any node joins new names only; for the name
// of an existing node the requestor needs the certificate of that node, or a token that an administrator made for the node.
func (c *nameClaim) decide() decision {
	if c.renewal {
		// A certificate for a name that never became a Node is not renewed: it expires, and then the name is free again. A Node
		// that is younger than the request may be that of another machine.
		if c.node == nil || c.node.CreationTimestamp.After(c.request.CreationTimestamp.Time) {
			return c.deny(reasonNodeMissing, fmt.Sprintf("There is no Node %q, and certificates are renewed for Nodes that exist. "+
				"Start the agent of the node, which registers it, or join the node again.", c.name))
		}
		if by := c.takenBy(); by != "" {
			return c.deny(reasonNameTaken, fmt.Sprintf("The name %q was given to another machine after this one had got its first certificate (request %s), by an administrator. "+
				"Join with another name (--node).", c.name, by))
		}
		return decision{approved: true}
	}
	only := tokenFor(c.request)
	switch why := nodejoin.CheckName(c.name); {
	case why != "":
		return c.deny(reasonNameReserved, fmt.Sprintf("No node may be called %q: %s. Choose another name for the node (--node).", c.name, why))
	case only == c.name:
		return decision{approved: true}
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
	return decision{approved: true}
}

// takenBy returns the request by which another machine got the name of the node, with a token that was made for the node,
// after the requestor had got its first certificate; empty if there is none. The requestor had a token for any name, and
// must not keep a name that an administrator has given to another machine. Both are identified by their certificates.
func (c *nameClaim) takenBy() string {
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

// credentialID returns the credential ID that the API server puts into the extra of a user with a certificate.
func credentialID(cert []byte) string {
	block, _ := pem.Decode(cert)
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return "X509SHA256=" + hex.EncodeToString(sum[:])
}

// takesName reports whether a request was made with a token for exactly this node. Such a request is kept for as long as an
// earlier certificate for the name can be valid, as the record of which machine was given the name.
func takesName(r *certificatesv1.CertificateSigningRequest) bool {
	request, err := parse(r.Spec.Request)
	if err != nil {
		return false
	}
	node := nodeOf(r, request)
	return node != "" && tokenFor(r) == node
}

// deny denies a request of a node or of a bootstrap token, whose machine waits for the answer. Other requests are left to
// administrators.
func (c *nameClaim) deny(reason, message string) decision {
	if c.renewal || nodejoin.IsBootstrap(c.request.Spec.Username, c.request.Spec.Groups) {
		return decision{reason: reason, message: message}
	}
	return decision{}
}

// tokenFor returns the node that the requestor's bootstrap token was made for; empty for a token for any new name, and for
// other requestors. The server has written both the name and the extra of the user; see kinds/certificates.
func tokenFor(r *certificatesv1.CertificateSigningRequest) string {
	if values := r.Spec.Extra[nodejoin.NodeExtra]; strings.HasPrefix(r.Spec.Username, nodejoin.UserPrefix) && len(values) == 1 {
		return values[0]
	}
	return ""
}

// nodeOf returns the node of a request to the signer of kubelets' client certificates; empty for other requests.
func nodeOf(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) string {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return ""
	}
	return strings.TrimPrefix(request.Subject.CommonName, "system:node:")
}

// isFirst reports whether a request for a node's certificate is made neither by the node itself nor with a token that was
// made for the node, so that no administrator has confirmed the name.
func isFirst(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) bool {
	node := nodeOf(r, request)
	return node != "" && r.Spec.Username != request.Subject.CommonName && tokenFor(r) != node
}

// keepsName reports whether a request is the record of which machine has the name of a node, and must be kept for as long as
// the certificate is valid.
func keepsName(r *certificatesv1.CertificateSigningRequest) bool {
	request, err := parse(r.Spec.Request)
	return err == nil && isFirst(r, request)
}

// holdsName reports whether a request by another user than the node was approved for the node's name, and its certificate is
// valid or still to be issued.
func holdsName(r *certificatesv1.CertificateSigningRequest, name string, now time.Time) bool {
	if !hasCondition(r, certificatesv1.CertificateApproved) || hasCondition(r, certificatesv1.CertificateDenied) || hasFailed(r) {
		return false
	}
	request, err := parse(r.Spec.Request)
	if err != nil || nodeOf(r, request) != name || r.Spec.Username == request.Subject.CommonName {
		return false
	}
	until, issued := expiry(r.Status.Certificate)
	return !issued || now.Before(until.Add(keepFirst))
}

// maxValidity returns the longest validity of a request's certificate.
func (config *Config) maxValidity(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) time.Duration {
	// An approval by an administrator is not limited further.
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

// decideNodeRequest decides about a request whose requestor has the permission, from what is stored rather than what the views show.
func decideNodeRequest(ctx context.Context, c *control.Cluster, request *certificatesv1.CertificateSigningRequest, renewal bool) (decision,
	error) {
	wanted, err := parse(request.Spec.Request)
	if err != nil {
		return decision{}, nil //nolint:nilerr // a request that cannot be parsed is left to administrators
	}
	// This waits until the cache shows what is stored, so that the list below has every approval.
	if _, err := c.Get(ctx, gr.CertificateSigningRequests, "", request.Name, ""); err != nil {
		return decision{}, err
	}
	what := nameClaim{
		request: request, name: nodeOf(request, wanted), renewal: renewal, now: time.Now(),
		others: control.List[*certificatesv1.CertificateSigningRequest](c, gr.CertificateSigningRequests, ""),
	}
	if len(validation.IsDNS1123Subdomain(what.name)) > 0 {
		return what.decide(), nil // there is no Node of such a name
	}
	o, err := c.Get(ctx, gr.Nodes, "", what.name, "")
	if err != nil && !apierrors.IsNotFound(err) {
		return decision{}, err
	}
	what.node, _ = o.(*corev1.Node)
	return what.decide(), nil
}
