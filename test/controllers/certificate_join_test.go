package controllers

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control/certificate"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodejoin"
	"proa.dev/proatest"
	"proa.dev/run/bootstraproles"
)

// joinCluster is a cluster in which clients request the certificates of nodes.
type joinCluster struct {
	*testing.T
	*proatest.Cluster
}

// runInJoinCluster runs a test in a cluster whose only controller is the one that approves and signs certificates.
func runInJoinCluster(t *testing.T, body func(y joinCluster)) {
	t.Helper()
	dir, ca := t.TempDir(), certificateAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir),
			onlyController(certificate.Controller(certificate.Config{CA: ca})))
		defer c.Stop()
		settle()
		body(joinCluster{t, c})
	})
}

// token returns a client that authenticated with a bootstrap token; node is the node that the token was made for, or empty.
func (y joinCluster) token(node string) client.Client {
	info := &user.DefaultInfo{Name: "system:bootstrap:abcdef",
		Groups: []string{nodejoin.Group, bootstraproles.JoinGroup, user.AllAuthenticated}}
	if node != "" {
		info.Extra = map[string][]string{nodejoin.NodeExtra: {node}}
	}
	return y.Server.Client(info)
}

// agent returns a client with the certificate of a node.
func (y joinCluster) agent(node string) client.Client {
	return y.Server.Client(&user.DefaultInfo{Name: "system:node:" + node, Groups: []string{user.NodesGroup, user.AllAuthenticated}})
}

// requestCert requests the client certificate of a node, and returns "issued", "pending", or the reason of the refusal.
func (y joinCluster) requestCert(c client.Client, request, node string) string {
	y.Helper()
	createRequest(y.T, c, request, certificatesv1.KubeAPIServerClientKubeletSignerName,
		pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}})
	time.Sleep(time.Second)
	r := getRequest(y.T, y.Client, request)
	switch {
	case len(r.Status.Conditions) == 0:
		return "pending"
	case len(r.Status.Certificate) > 0:
		return "issued"
	}
	return r.Status.Conditions[0].Reason
}

func (y joinCluster) expect(what, got, want string) {
	y.Helper()
	if got != want {
		y.Errorf("%s: %s, want %s", what, got, want)
	}
}

func (y joinCluster) createNode(name string) {
	y.Helper()
	if _, err := y.Client.Create(y.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		y.Fatal(err)
	}
}

// TestTokenJoinsOnlyNewNames checks that a bootstrap token for any node joins new names only, that a token for a node joins that
// node, new or not, and no other, and that a node renews its own certificate.
func TestTokenJoinsOnlyNewNames(t *testing.T) {
	t.Parallel()
	runInJoinCluster(t, func(y joinCluster) {
		y.createNode("old")
		y.expect("a token becomes an existing node", y.requestCert(y.token(""), "r1", "old"), "NodeExists")
		y.expect("a token joins a new name", y.requestCert(y.token(""), "r2", "new"), "issued")
		y.expect("a token for a node joins it again", y.requestCert(y.token("old"), "r3", "old"), "issued")
		y.expect("a token for a node that does not exist yet", y.requestCert(y.token("later"), "r4", "later"), "issued")
		y.expect("a token for a node becomes another", y.requestCert(y.token("old"), "r5", "fresh"), "TokenForOtherNode")
		y.expect("a token for a node that is called like the API", y.requestCert(y.token("kubernetes"), "r6", "kubernetes"), "NameReserved")
		for i, name := range []string{"kubernetes", "localhost", "kubernetes.default.svc", "127.0.0.1", "", "../a", "A"} {
			y.expect("a token joins as "+name, y.requestCert(y.token(""), "reserved"+string(rune('a'+i)), name), "NameReserved")
		}
		y.expect("a node renews its certificate", y.requestCert(y.agent("old"), "r7", "old"), "issued")
		if got := getRequest(t, y.Client,
			"r1").Status.Conditions[0].Message; got != `Node "old" exists already, and this token joins new nodes only. `+
			`If this machine is that node and has lost its certificate, make a token for it with "proa token create --node old"; if it is another machine, give it another name (--node).` {
			t.Errorf("the refusal says: %s", got)
		}
	})
}

// TestNodeExtraCountsOnlyForTokens checks that the node in a user's extra is used only for bootstrap tokens. The request of another
// user who may join nodes, for the name of an existing node, waits for an administrator.
func TestNodeExtraCountsOnlyForTokens(t *testing.T) {
	t.Parallel()
	runInJoinCluster(t, func(y joinCluster) {
		y.createNode("old")
		grantCreate(t, y.Client, "creates", "certificatesigningrequests")
		grantCreate(t, y.Client, "joins", "certificatesigningrequests/nodeclient")
		settle()
		joiner := y.Server.Client(&user.DefaultInfo{Name: "joiner", Groups: []string{user.AllAuthenticated},
			Extra: map[string][]string{nodejoin.NodeExtra: {"old"}}})
		y.expect("a user who claims to have a token", y.requestCert(joiner, "r1", "old"), "pending")
		y.expect("a user who may join nodes", y.requestCert(joiner, "r2", "new"), "issued")
	})
}

// TestNodeNameIsIssuedOnce checks that only one of several machines that request the same new name gets it, concurrently or one
// after the other, and that the name is free again when the certificate of a node that was never registered has expired.
func TestNodeNameIsIssuedOnce(t *testing.T) {
	t.Parallel()
	runInJoinCluster(t, func(y joinCluster) {
		subject := pkix.Name{CommonName: "system:node:both", Organization: []string{"system:nodes"}}
		for _, name := range []string{"b1", "b2", "b3", "b4", "b5", "b6"} {
			createRequest(t, y.token(""), name, certificatesv1.KubeAPIServerClientKubeletSignerName, subject)
		}
		time.Sleep(time.Minute)
		issued := 0
		for _, name := range []string{"b1", "b2", "b3", "b4", "b5", "b6"} {
			if len(getRequest(t, y.Client, name).Status.Certificate) > 0 {
				issued++
			}
		}
		if issued != 1 {
			t.Errorf("%d machines got the same name", issued)
		}

		y.expect("the first request", y.requestCert(y.token(""), "r1", "n"), "issued")
		y.expect("a later request", y.requestCert(y.token(""), "r2", "n"), "NameTaken")
		y.expect("a request with a token for the node", y.requestCert(y.token("n"), "r3", "n"), "issued")
		// The certificate of a bootstrap token expires before the request that records it is deleted.
		first, last := leafOf(t, getRequest(t, y.Client, "r1")), leafOf(t, getRequest(t, y.Client, "r3"))
		if validity := first.NotAfter.Sub(first.NotBefore); validity > 24*time.Hour {
			t.Errorf("the first certificate of a node is good for %v", validity)
		}
		if validity := last.NotAfter.Sub(last.NotBefore); validity < 300*24*time.Hour {
			t.Errorf("the certificate of a token for the node is good for %v", validity)
		}

		y.expect("a first certificate", y.requestCert(y.token(""), "g1", "ghost"), "issued")
		time.Sleep(23 * time.Hour)
		y.expect("a certificate of a name that became no Node is renewed", y.requestCert(y.agent("ghost"), "g2", "ghost"), "NodeMissing")
		y.expect("another machine before the certificate has ended", y.requestCert(y.token(""), "g3", "ghost"), "NameTaken")
		ends := leafOf(t, getRequest(t, y.Client, "g1")).NotAfter
		time.Sleep(time.Until(ends) + 5*time.Minute)
		y.expect("another machine when it has just ended", y.requestCert(y.token(""), "g4", "ghost"), "NameTaken")
		time.Sleep(10 * time.Minute)
		y.expect("another machine when the name is free again", y.requestCert(y.token(""), "g5", "ghost"), "issued")
		y.createNode("ghost")
		y.expect("a node renews its first certificate", y.requestCert(y.agent("ghost"), "g6", "ghost"), "issued")
	})
}

func leafOf(t *testing.T, r *certificatesv1.CertificateSigningRequest) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(r.Status.Certificate)
	if block == nil {
		t.Fatalf("%s has no certificate", r.Name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFirstHolderCannotRenewReassignedName checks that a machine that got a name with a token for any node, and never
// registered it, gets no further certificate when an administrator has given the name to another machine.
func TestFirstHolderCannotRenewReassignedName(t *testing.T) {
	t.Parallel()
	runInJoinCluster(t, func(y joinCluster) {
		y.expect("an attacker is first", y.requestCert(y.token(""), "attacker", "a"), "issued")
		y.expect("the machine comes too late", y.requestCert(y.token(""), "late", "a"), "NameTaken")
		y.expect("an administrator gives it the name", y.requestCert(y.token("a"), "machine", "a"), "issued")
		y.createNode("a")
		time.Sleep(23 * time.Hour)
		clientWithCert := func(request string) client.Client {
			block, _ := pem.Decode(getRequest(y.T, y.Client, request).Status.Certificate)
			sum := sha256.Sum256(block.Bytes)
			return y.Server.Client(&user.DefaultInfo{
				Name: "system:node:a", Groups: []string{user.NodesGroup, user.AllAuthenticated},
				Extra: map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
			})
		}
		y.expect("the attacker renews", y.requestCert(clientWithCert("attacker"), "again-1", "a"), "NameTaken")
		y.expect("the machine renews", y.requestCert(clientWithCert("machine"), "again-2", "a"), "issued")
	})
}
