package gatewayplan

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// maxCABytes bounds the CA certificates behind one reference.
const maxCABytes = 256 << 10

// readCertificates finds the server certificates of a listener. One that cannot be used is left out and reported.
func (d *decision) readCertificates(l *listener) {
	refuse := func(reason gw.ListenerConditionReason, format string, args ...any) {
		l.badReference = Problem{string(reason), fmt.Sprintf(format, args...)}
	}
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		refuse(gw.ListenerReasonInvalidCertificateRef, "the listener names no certificate")
		return
	}
	kind := kindGateway
	if l.set != nil {
		kind = kindListenerSet
	}
	for _, ref := range l.TLS.CertificateRefs {
		k := key{Namespace: string(deref(ref.Namespace, gw.Namespace(l.namespace()))), Name: string(ref.Name)}
		if deref(ref.Group, "") != "" || deref(ref.Kind, kindSecret) != kindSecret {
			refuse(gw.ListenerReasonInvalidCertificateRef, "certificates are in Secrets, and not in objects of the kind %s",
				deref(ref.Kind, kindSecret))
			continue
		}
		if !permits(d.Grants, reference{kind, l.namespace(), "", kindSecret, k}) {
			refuse(gw.ListenerReasonRefNotPermitted, "no ReferenceGrant in the namespace %s lets the %s refer to the Secret %s", k.Namespace, kind, k.Name)
			continue
		}
		d.plan.Secrets[k] = true
		secret := d.Secret(k)
		if secret == nil {
			refuse(gw.ListenerReasonInvalidCertificateRef, "there is no Secret %s", k)
			continue
		}
		c, err := d.Certificate(secret)
		if err != nil {
			refuse(gw.ListenerReasonInvalidCertificateRef, "the Secret %s: %v", k, err)
			continue
		}
		l.certificates = append(l.certificates, c)
	}
}

// clientValidation is how client certificates are verified.
type clientValidation struct {
	authorities *x509.CertPool // nil if clients need no certificate
	unverified  bool           // clients without a verified certificate are accepted
}

// readClientValidation finds the CA certificates that verify the clients of a listener.
func (d *decision) readClientValidation(l *listener) {
	t := l.gateway.Spec.TLS
	if t == nil || t.Frontend == nil || l.Protocol != gw.HTTPSProtocolType {
		return
	}
	v := t.Frontend.Default.Validation
	for _, p := range t.Frontend.PerPort {
		if p.Port == l.Port {
			v = p.TLS.Validation
		}
	}
	if v == nil {
		return
	}
	if v.Mode == gw.AllowInsecureFallback {
		l.gateway.insecure, l.clients.unverified = true, true
	}
	pool, found := x509.NewCertPool(), false
	for _, ref := range v.CACertificateRefs {
		namespace := string(deref(ref.Namespace, gw.Namespace(l.gateway.Namespace)))
		pem, why := d.caCertificates(reference{kindGateway, l.gateway.Namespace, string(ref.Group), string(ref.Kind),
			key{Namespace: namespace, Name: string(ref.Name)}})
		switch {
		case !why.IsZero():
			l.badReference = why
		case pool.AppendCertsFromPEM([]byte(pem)):
			found = true
		}
	}
	if !found {
		l.refused = Problem{string(gw.ListenerReasonNoValidCACertificate), "none of the references leads to certificates that clients could be verified with"}
		return
	}
	l.clients.authorities = pool
}

// caCertificates returns the CA certificates behind a reference, as PEM. The reasons of its problems are those of listeners, which policies
// share.
func (d *decision) caCertificates(r reference) (string, Problem) {
	if r.toGroup != "" || r.toKind != kindConfigMap {
		return "", Problem{string(gw.ListenerReasonInvalidCACertificateKind), fmt.Sprintf("certificates of authorities are in ConfigMaps, and not in objects of the kind %s", r.toKind)}
	}
	if !permits(d.Grants, r) {
		return "", Problem{string(gw.ListenerReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant in the namespace %s lets the %s refer to the ConfigMap %s", r.to.Namespace, r.fromKind, r.to.Name)}
	}
	d.plan.ConfigMaps[r.to] = true
	invalid := func(format string, args ...any) (string, Problem) {
		return "", Problem{string(gw.ListenerReasonInvalidCACertificateRef), fmt.Sprintf(format, args...)}
	}
	m := d.ConfigMap(r.to)
	if m == nil {
		return invalid("there is no ConfigMap %s", r.to)
	}
	pem := m.Data[corev1.ServiceAccountRootCAKey]
	if len(pem) > maxCABytes || !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		return invalid("there are no certificates in %s of the ConfigMap %s", corev1.ServiceAccountRootCAKey, r.to)
	}
	return pem, Problem{}
}

// readGatewayTLS reads the client certificate of a Gateway for its backends.
func (d *decision) readGatewayTLS(g *Gateway) {
	t := g.Spec.TLS
	if t == nil || t.Backend == nil || t.Backend.ClientCertificateRef == nil {
		return
	}
	ref := t.Backend.ClientCertificateRef
	k := key{Namespace: string(deref(ref.Namespace, gw.Namespace(g.Namespace))), Name: string(ref.Name)}
	invalid := func(format string, args ...any) {
		g.badReference = Problem{string(gw.GatewayReasonInvalidClientCertificateRef), fmt.Sprintf(format, args...)}
	}
	switch {
	case deref(ref.Group, "") != "" || deref(ref.Kind, kindSecret) != kindSecret:
		invalid("certificates are in Secrets, and not in objects of the kind %s", deref(ref.Kind, kindSecret))
		return
	case !permits(d.Grants, reference{kindGateway, g.Namespace, "", kindSecret, k}):
		g.badReference = Problem{string(gw.GatewayReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant in the namespace %s lets the Gateway refer to the Secret %s", k.Namespace, k.Name)}
		return
	}
	d.plan.Secrets[k] = true
	secret := d.Secret(k)
	if secret == nil {
		invalid("there is no Secret %s", k)
		return
	}
	crt, private := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if _, err := tls.X509KeyPair(crt, private); err != nil {
		invalid("the Secret %s has no certificate and key that can be used together", k)
		return
	}
	g.identity = string(crt) + "\n" + string(private)
}
