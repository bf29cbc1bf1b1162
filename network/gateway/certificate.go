package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// maxTrusted bounds the certificates of authorities that one reference may bring.
const maxTrusted = 256 << 10

// readCertificates finds the certificates that the clients of a listener are shown. One that cannot be used is left out, and said.
func (d *decision) readCertificates(l *listener) {
	refuse := func(reason gw.ListenerConditionReason, format string, args ...any) {
		l.references = verdict{string(reason), fmt.Sprintf(format, args...)}
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
		k := key{string(deref(ref.Namespace, gw.Namespace(l.namespace()))), string(ref.Name)}
		if deref(ref.Group, "") != "" || deref(ref.Kind, kindSecret) != kindSecret {
			refuse(gw.ListenerReasonInvalidCertificateRef, "certificates are in Secrets, and not in objects of the kind %s", deref(ref.Kind, kindSecret))
			continue
		}
		if !permits(d.grants, reference{kind, l.namespace(), "", kindSecret, k}) {
			refuse(gw.ListenerReasonRefNotPermitted, "no ReferenceGrant in the namespace %s lets the %s refer to the Secret %s", k.namespace, kind, k.name)
			continue
		}
		d.plan.secrets[k] = true
		secret := d.secret(k)
		if secret == nil {
			refuse(gw.ListenerReasonInvalidCertificateRef, "there is no Secret %s", k)
			continue
		}
		c, err := d.certificate(secret)
		if err != nil {
			refuse(gw.ListenerReasonInvalidCertificateRef, "the Secret %s: %v", k, err)
			continue
		}
		l.certificates = append(l.certificates, c)
	}
}

// clientValidation is how clients prove who they are.
type clientValidation struct {
	authorities *x509.CertPool // nil where clients are not asked
	unverified  bool
	refused     verdict // no client can be let in
}

// readClientValidation finds out whom the clients of a listener must have their certificates from.
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
		pem, why := d.authorities(reference{kindGateway, l.gateway.Namespace, string(ref.Group), string(ref.Kind), key{namespace, string(ref.Name)}})
		switch {
		case !why.isGood():
			l.references = why
		case pool.AppendCertsFromPEM([]byte(pem)):
			found = true
		}
	}
	if !found {
		l.refused = verdict{string(gw.ListenerReasonNoValidCACertificate), "none of the references leads to certificates that clients could be verified with"}
		return
	}
	l.clients.authorities = pool
}

// authorities reads the certificates of authorities that a reference leads to, as PEM. The reasons are those of listeners; policies know
// the same words.
func (d *decision) authorities(r reference) (string, verdict) {
	if r.toGroup != "" || r.toKind != kindConfigMap {
		return "", verdict{string(gw.ListenerReasonInvalidCACertificateKind), fmt.Sprintf("certificates of authorities are in ConfigMaps, and not in objects of the kind %s", r.toKind)}
	}
	if !permits(d.grants, r) {
		return "", verdict{string(gw.ListenerReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant in the namespace %s lets the %s refer to the ConfigMap %s", r.to.namespace, r.fromKind, r.to.name)}
	}
	d.plan.configMaps[r.to] = true
	invalid := func(format string, args ...any) (string, verdict) {
		return "", verdict{string(gw.ListenerReasonInvalidCACertificateRef), fmt.Sprintf(format, args...)}
	}
	m := d.configMap(r.to)
	if m == nil {
		return invalid("there is no ConfigMap %s", r.to)
	}
	pem := m.Data[corev1.ServiceAccountRootCAKey]
	if len(pem) > maxTrusted || !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		return invalid("there are no certificates in %s of the ConfigMap %s", corev1.ServiceAccountRootCAKey, r.to)
	}
	return pem, verdict{}
}

// readGatewayTLS reads the certificate that a Gateway shows to backends.
func (d *decision) readGatewayTLS(g *gateway) {
	t := g.Spec.TLS
	if t == nil || t.Backend == nil || t.Backend.ClientCertificateRef == nil {
		return
	}
	ref := t.Backend.ClientCertificateRef
	k := key{string(deref(ref.Namespace, gw.Namespace(g.Namespace))), string(ref.Name)}
	invalid := func(format string, args ...any) {
		g.references = verdict{string(gw.GatewayReasonInvalidClientCertificateRef), fmt.Sprintf(format, args...)}
	}
	switch {
	case deref(ref.Group, "") != "" || deref(ref.Kind, kindSecret) != kindSecret:
		invalid("certificates are in Secrets, and not in objects of the kind %s", deref(ref.Kind, kindSecret))
		return
	case !permits(d.grants, reference{kindGateway, g.Namespace, "", kindSecret, k}):
		g.references = verdict{string(gw.GatewayReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant in the namespace %s lets the Gateway refer to the Secret %s", k.namespace, k.name)}
		return
	}
	d.plan.secrets[k] = true
	secret := d.secret(k)
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
