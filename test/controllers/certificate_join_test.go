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

// yard is a cluster in which machines request the certificates of nodes.
type yard struct {
	*testing.T
	*proatest.Cluster
}

// inYard runs a test in a cluster whose only controller is the one under test.
func inYard(t *testing.T, body func(y yard)) {
	t.Helper()
	dir, ca := t.TempDir(), certificateAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir),
			onlyController(certificate.Controller(certificate.Config{CA: ca})))
		defer c.Stop()
		settle()
		body(yard{t, c})
	})
}

// token returns a client that authenticated with a bootstrap token; node is the node that the token was made for, or empty.
func (y yard) token(node string) client.Client {
	who := &user.DefaultInfo{Name: "system:bootstrap:abcdef",
		Groups: []string{nodejoin.Group, bootstraproles.JoinGroup, user.AllAuthenticated}}
	if node != "" {
		who.Extra = map[string][]string{nodejoin.NodeExtra: {node}}
	}
	return y.Server.Client(who)
}

// agent returns a client with the certificate of a node.
func (y yard) agent(node string) client.Client {
	return y.Server.Client(&user.DefaultInfo{Name: "system:node:" + node, Groups: []string{user.NodesGroup, user.AllAuthenticated}})
}

// ask requests the client certificate of a node and returns the outcome of the request.
func (y yard) ask(c client.Client, request, node string) string {
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

func (y yard) want(what, got, want string) {
	y.Helper()
	if got != want {
		y.Errorf("%s: %s, want %s", what, got, want)
	}
}

func (y yard) node(name string) {
	y.Helper()
	if _, err := y.Client.Create(y.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		y.Fatal(err)
	}
}

// TestTokenBecomesNoExistingNode checks that a bootstrap token joins new names only, that one made for a node joins that node,
// new or not, and no other, and that a node renews its own certificate.
func TestTokenBecomesNoExistingNode(t *testing.T) {
	t.Parallel()
	inYard(t, func(y yard) {
		y.node("old")
		y.want("a token becomes an existing node", y.ask(y.token(""), "r1", "old"), "NodeExists")
		y.want("a token joins a new name", y.ask(y.token(""), "r2", "new"), "issued")
		y.want("a token for a node joins it again", y.ask(y.token("old"), "r3", "old"), "issued")
		y.want("a token for a node that does not exist yet", y.ask(y.token("later"), "r4", "later"), "issued")
		y.want("a token for a node becomes another", y.ask(y.token("old"), "r5", "fresh"), "TokenForOtherNode")
		y.want("a token for a node that is called like the API", y.ask(y.token("kubernetes"), "r6", "kubernetes"), "NameReserved")
		for i, name := range []string{"kubernetes", "localhost", "kubernetes.default.svc", "127.0.0.1", "", "../a", "A"} {
			y.want("a token joins as "+name, y.ask(y.token(""), "reserved"+string(rune('a'+i)), name), "NameReserved")
		}
		y.want("a node renews its certificate", y.ask(y.agent("old"), "r7", "old"), "issued")
		if got := getRequest(t, y.Client,
			"r1").Status.Conditions[0].Message; got != `Node "old" exists already, and this token joins new nodes only. `+
			`If this machine is that node and has lost its certificate, make a token for it with "proa token create --node old"; if it is another machine, give it another name (--node).` {
			t.Errorf("the refusal says: %s", got)
		}
	})
}

// TestExtraOfOthersIsNoToken checks that the node in the extra of a user counts only for bootstrap tokens, and that a user who
// may join nodes in another way gets no existing node either, but waits for an administrator.
func TestExtraOfOthersIsNoToken(t *testing.T) {
	t.Parallel()
	inYard(t, func(y yard) {
		y.node("old")
		grantCreate(t, y.Client, "creates", "certificatesigningrequests")
		grantCreate(t, y.Client, "joins", "certificatesigningrequests/nodeclient")
		settle()
		joiner := y.Server.Client(&user.DefaultInfo{Name: "joiner", Groups: []string{user.AllAuthenticated},
			Extra: map[string][]string{nodejoin.NodeExtra: {"old"}}})
		y.want("whoever says it has a token", y.ask(joiner, "r1", "old"), "pending")
		y.want("whoever may join nodes", y.ask(joiner, "r2", "new"), "issued")
	})
}

// TestNobodyElseGetsANameThatWasGiven checks that of two machines that request the same new name one gets it, concurrently or
// one after the other, and that the name is free again when the certificate of a machine that was never registered has expired.
func TestNobodyElseGetsANameThatWasGiven(t *testing.T) {
	t.Parallel()
	inYard(t, func(y yard) {
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

		y.want("who comes first", y.ask(y.token(""), "r1", "n"), "issued")
		y.want("who comes later", y.ask(y.token(""), "r2", "n"), "NameTaken")
		y.want("whom an administrator vouches for", y.ask(y.token("n"), "r3", "n"), "issued")
		// The certificate of a bootstrap token expires before the request that records it is deleted.
		first, last := leafOf(t, getRequest(t, y.Client, "r1")), leafOf(t, getRequest(t, y.Client, "r3"))
		if life := first.NotAfter.Sub(first.NotBefore); life > 24*time.Hour {
			t.Errorf("the first certificate of a node is good for %v", life)
		}
		if life := last.NotAfter.Sub(last.NotBefore); life < 300*24*time.Hour {
			t.Errorf("the certificate of a token for the node is good for %v", life)
		}

		y.want("a first certificate", y.ask(y.token(""), "g1", "ghost"), "issued")
		time.Sleep(23 * time.Hour)
		y.want("a certificate of a name that became no Node is renewed", y.ask(y.agent("ghost"), "g2", "ghost"), "NodeMissing")
		y.want("another machine before the certificate has ended", y.ask(y.token(""), "g3", "ghost"), "NameTaken")
		ends := leafOf(t, getRequest(t, y.Client, "g1")).NotAfter
		time.Sleep(time.Until(ends) + 5*time.Minute)
		y.want("another machine when it has just ended", y.ask(y.token(""), "g4", "ghost"), "NameTaken")
		time.Sleep(10 * time.Minute)
		y.want("another machine when the name is free again", y.ask(y.token(""), "g5", "ghost"), "issued")
		y.node("ghost")
		y.want("a node renews its first certificate", y.ask(y.agent("ghost"), "g6", "ghost"), "issued")
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

// TestFirstHolderDoesNotKeepANameGivenToAnother checks that a machine that got a name with a token for any node, and never
// registered it, gets no further certificate when an administrator has given the name to another machine.
func TestFirstHolderDoesNotKeepANameGivenToAnother(t *testing.T) {
	t.Parallel()
	inYard(t, func(y yard) {
		y.want("a stranger is first", y.ask(y.token(""), "stranger", "a"), "issued")
		y.want("the machine comes too late", y.ask(y.token(""), "late", "a"), "NameTaken")
		y.want("an administrator gives it the name", y.ask(y.token("a"), "machine", "a"), "issued")
		y.node("a")
		time.Sleep(23 * time.Hour)
		with := func(request string) client.Client {
			block, _ := pem.Decode(getRequest(y.T, y.Client, request).Status.Certificate)
			sum := sha256.Sum256(block.Bytes)
			return y.Server.Client(&user.DefaultInfo{
				Name: "system:node:a", Groups: []string{user.NodesGroup, user.AllAuthenticated},
				Extra: map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
			})
		}
		y.want("the stranger renews", y.ask(with("stranger"), "again-1", "a"), "NameTaken")
		y.want("the machine renews", y.ask(with("machine"), "again-2", "a"), "issued")
	})
}
