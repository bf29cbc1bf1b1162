package gatewayplan

import (
	"fmt"
	"slices"
	"strings"

	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// Policy is a BackendTLSPolicy with what was decided about it.
type Policy struct {
	*gw.BackendTLSPolicy
	rejected, badReference Problem
	// conflicted names an older policy with the same target, lostTargets holds the targets that go to older policies.
	conflicted  Problem
	lostTargets map[string]bool
	ca          string // CA certificates, as PEM
	system      bool   // the CA certificates of this machine are trusted instead
	names       string // as in httpproxy.Ref.AltNames
	// gateways are the Gateways whose routes lead to a backend of the policy.
	gateways []*Gateway
}

// maxAncestors is the limit of the API for the Gateways in the status of a policy.
const maxAncestors = 16

// HasStatus reports whether the status of the policy is to be written: it is in use, or has entries that may be outdated.
func (p *Policy) HasStatus() bool { return len(p.gateways) > 0 || len(p.Status.Ancestors) > 0 }

func (p *Policy) usedBy(g *Gateway) {
	if g.Name != "" && len(p.gateways) < maxAncestors && !slices.Contains(p.gateways, g) {
		p.gateways = append(p.gateways, g)
	}
}

// readPolicies decides about policies. Of two for the same port of a Service, the older one applies.
func (d *decision) readPolicies() {
	d.backendPolicies = map[key][]*Policy{}
	taken := map[string]*Policy{}
	for _, spec := range sorted(d.World.Policies) {
		p := &Policy{BackendTLSPolicy: spec}
		d.readValidation(p)
		for _, t := range spec.Spec.TargetRefs {
			if t.Group != "" || t.Kind != kindService {
				continue
			}
			k := key{Namespace: spec.Namespace, Name: string(t.Name)}
			at := k.String() + " " + string(deref(t.SectionName, ""))
			switch other := taken[at]; other {
			case p: // the policy names the target twice
				continue
			case nil:
				taken[at] = p
			default:
				p.conflicted = Problem{string(gw.PolicyReasonConflicted),
					fmt.Sprintf("the policy %s is for the same Service, and older", other.Name)}
				p.loseTarget(at)
			}
			d.backendPolicies[k] = append(d.backendPolicies[k], p)
		}
		d.plan.Policies = append(d.plan.Policies, p)
	}
}

// loseTarget records that a target goes to an older policy.
func (p *Policy) loseTarget(target string) {
	if p.lostTargets == nil {
		p.lostTargets = map[string]bool{}
	}
	p.lostTargets[target] = true
}

// refused returns the problem for the condition Accepted.
func (p *Policy) refused() Problem {
	if p.rejected.IsZero() {
		return p.conflicted
	}
	return p.rejected
}

// readValidation reads which CA certificates and names a policy trusts.
func (d *decision) readValidation(p *Policy) {
	v := p.Spec.Validation
	var names []string
	for _, n := range v.SubjectAltNames {
		name := string(n.Hostname)
		if n.Type == gw.URISubjectAltNameType {
			name = string(n.URI)
		}
		if !strings.ContainsAny(name, " \t\n") {
			names = append(names, name)
		}
	}
	p.names = strings.Join(names, " ")
	if w := v.WellKnownCACertificates; w != nil && *w != "" {
		p.system = *w == gw.WellKnownCACertificatesSystem
		if !p.system {
			p.rejected = Problem{string(gw.PolicyReasonInvalid),
				fmt.Sprintf("certificates of authorities that are known as %s are not known here", *w)}
		}
		return
	}
	var pems []string
	for _, ref := range v.CACertificateRefs {
		pem, why := d.caCertificates(reference{"BackendTLSPolicy", p.Namespace, string(ref.Group), string(ref.Kind),
			key{Namespace: p.Namespace, Name: string(ref.Name)}})
		if why.IsZero() {
			pems = append(pems, pem)
			continue
		}
		if why.Reason == string(gw.ListenerReasonInvalidCACertificateKind) {
			why.Reason = string(gw.BackendTLSPolicyReasonInvalidKind)
		}
		p.badReference = why
	}
	p.ca = strings.Join(pems, "\n")
	if p.ca == "" {
		p.rejected = Problem{string(gw.BackendTLSPolicyReasonNoValidCACertificate), "none of the references leads to certificates that backends could be verified with"}
	}
}

// policyFor returns the policy of a Service port, or nil. A policy that names the port wins over one that does not, and then the older one.
func (d *decision) policyFor(service key, port string) *Policy {
	var general *Policy
	for _, p := range d.backendPolicies[service] {
		for _, t := range p.Spec.TargetRefs {
			section := string(deref(t.SectionName, ""))
			if t.Group != "" || t.Kind != kindService || string(t.Name) != service.Name || p.lostTargets[service.String()+" "+section] {
				continue
			}
			switch {
			case section != "" && section == port:
				return p
			case section == "" && general == nil:
				general = p
			}
		}
	}
	return general
}
