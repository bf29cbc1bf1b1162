package route

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
)

// Section is what a port does with some host names. A request belongs to the section with the most exact Host, and to no other.
type Section struct {
	// Host is a name, "*.example.com" for every name below it, or empty for all.
	Host string
	// Table has the rules. Those of streams are found by their Host alone.
	Table *Table
	// Stream says that what is inside of TLS is not HTTP: bytes go to a backend as they come.
	Stream bool
	// Certificates are what clients are shown; the first that fits. Without any, TLS is not ended here: streams are passed on with it.
	Certificates []*Certificate
	// ClientCAs are the certificates of which one must vouch for a client; nil does not ask clients. With Unverified, those are let in too
	// for whom none does.
	ClientCAs  *x509.CertPool
	Unverified bool
}

// SwapSections makes the proxy choose a table by the host of a request; what Swap has said does not count any more.
func (p *Proxy) SwapSections(list []Section) { p.sections.Store(&list) }

// sectionOf returns the section for a name; nil if there is none.
func sectionOf(list []Section, name string) *Section {
	var best *Section
	for i := range list {
		s := &list[i]
		if s.covers(name) && (best == nil || best.isWild() && (!s.isWild() || len(s.Host) > len(best.Host))) {
			best = s
		}
	}
	return best
}

func (s *Section) isWild() bool { return s.Host == "" || s.Host[0] == '*' }

// covers says that a name is one that the section is for.
func (s *Section) covers(name string) bool {
	if s.Host == "" || s.Host == name {
		return true
	}
	suffix, wild := strings.CutPrefix(s.Host, "*")
	return wild && len(name) > len(suffix) && strings.HasSuffix(name, suffix)
}

// tableFor returns the rules for a request, or the code with which it is refused: a connection with TLS is for the section of the name
// that the client has asked for in its handshake, and for no other.
func (p *Proxy) tableFor(r *http.Request) (*Table, int) {
	list := p.sections.Load()
	if list == nil {
		return p.table.Load(), 0
	}
	s := sectionOf(*list, hostOf(r.Host))
	if r.TLS != nil && sectionOf(*list, tlsName(r.TLS.ServerName)) != s {
		return nil, http.StatusMisdirectedRequest
	}
	if s == nil {
		return nil, 0
	}
	return s.Table, 0
}

func tlsName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// tls is how the clients of a section are spoken to.
func (s *Section) tls(protocols ...string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: s.certificate}
	switch {
	case s.ClientCAs != nil && !s.Unverified:
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, s.ClientCAs
	case s.Unverified:
		c.ClientAuth = tls.RequestClientCert
	}
	return c
}

// certificate chooses what a client is shown.
func (s *Section) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	for _, c := range s.Certificates {
		if hello.SupportsCertificate(c) == nil {
			return c, nil
		}
	}
	return s.Certificates[0], nil
}
