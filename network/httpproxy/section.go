package httpproxy

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
)

// Section is the configuration of a port for some host names. A request belongs to the section with the most specific
// Host, and to no other.
type Section struct {
	// Host is a name, "*.example.com" for every name below it, or empty for all.
	Host string
	// Table has the rules. Those of streams match by their Host alone.
	Table *Table
	// Stream means that the content of TLS is not HTTP: bytes are copied to a backend.
	Stream bool
	// Certificates are the server certificates; the first that matches is used. Without any, TLS is not terminated:
	// streams are passed through.
	Certificates []*Certificate
	// ClientCAs are the CA certificates that verify clients; nil requests no client certificate. With Unverified,
	// clients without a verified certificate are accepted too.
	ClientCAs  *x509.CertPool
	Unverified bool
}

// SwapSections makes the proxy choose a table by the host of a request. It overrides Swap.
func (p *Proxy) SwapSections(list []Section) { p.sections.Store(&list) }

// sectionOf returns the section for a name, or nil if there is none.
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

// covers reports whether the section is for a name.
func (s *Section) covers(name string) bool {
	if s.Host == "" || s.Host == name {
		return true
	}
	suffix, wild := strings.CutPrefix(s.Host, "*")
	return wild && len(name) > len(suffix) && strings.HasSuffix(name, suffix)
}

// tableFor returns the rules for a request, or the status code with which it is refused: a TLS connection is for the
// section of its server name, and for no other.
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

// tls returns the TLS configuration for the clients of a section.
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

// certificate returns the server certificate for a client.
func (s *Section) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	for _, c := range s.Certificates {
		if hello.SupportsCertificate(c) == nil {
			return c, nil
		}
	}
	return s.Certificates[0], nil
}
