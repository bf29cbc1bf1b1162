package gateway

import (
	"fmt"
	"slices"
	"strings"

	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// policy is a BackendTLSPolicy.
type policy struct {
	*gw.BackendTLSPolicy
	accepted, references verdict
	// conflicted says that another policy is for one of the targets, which are lost to this one. It counts for the others.
	conflicted verdict
	lost       map[string]bool
	ca         string // certificates of authorities, as PEM
	system     bool   // those of this machine instead
	names      string // as in route.Ref.AltNames
	// gateways are those whose routes lead to a backend of the policy.
	gateways []*gateway
}

// maxAncestors is how many Gateways the status of a policy can name.
const maxAncestors = 16

func (p *policy) usedBy(g *gateway) {
	if g.Name != "" && len(p.gateways) < maxAncestors && !slices.Contains(p.gateways, g) {
		p.gateways = append(p.gateways, g)
	}
}

// readPolicies decides about policies. Of two for the same port of a Service, the older one counts.
func (d *decision) readPolicies() {
	d.backendPolicies = map[key][]*policy{}
	taken := map[string]*policy{}
	for _, spec := range sorted(d.policies) {
		p := &policy{BackendTLSPolicy: spec}
		d.readValidation(p)
		for _, t := range spec.Spec.TargetRefs {
			if t.Group != "" || t.Kind != kindService {
				continue
			}
			k := key{spec.Namespace, string(t.Name)}
			at := k.String() + " " + string(deref(t.SectionName, ""))
			switch other := taken[at]; other {
			case p: // named twice
				continue
			case nil:
				taken[at] = p
			default:
				p.conflicted = verdict{string(gw.PolicyReasonConflicted), fmt.Sprintf("the policy %s is for the same Service, and older", other.Name)}
				p.lose(at)
			}
			d.backendPolicies[k] = append(d.backendPolicies[k], p)
		}
		d.plan.policies = append(d.plan.policies, p)
	}
}

// lose says that a target of the policy belongs to another one.
func (p *policy) lose(target string) {
	if p.lost == nil {
		p.lost = map[string]bool{}
	}
	p.lost[target] = true
}

// refused is what the status says against the policy.
func (p *policy) refused() verdict {
	if p.accepted.isGood() {
		return p.conflicted
	}
	return p.accepted
}

// readValidation reads whom a policy trusts.
func (d *decision) readValidation(p *policy) {
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
			p.accepted = verdict{string(gw.PolicyReasonInvalid), fmt.Sprintf("certificates of authorities that are known as %s are not known here", *w)}
		}
		return
	}
	var pems []string
	for _, ref := range v.CACertificateRefs {
		pem, why := d.authorities(reference{"BackendTLSPolicy", p.Namespace, string(ref.Group), string(ref.Kind), key{p.Namespace, string(ref.Name)}})
		if why.isGood() {
			pems = append(pems, pem)
			continue
		}
		if why.reason == string(gw.ListenerReasonInvalidCACertificateKind) {
			why.reason = string(gw.BackendTLSPolicyReasonInvalidKind)
		}
		p.references = why
	}
	p.ca = strings.Join(pems, "\n")
	if p.ca == "" {
		p.accepted = verdict{string(gw.BackendTLSPolicyReasonNoValidCACertificate), "none of the references leads to certificates that backends could be verified with"}
	}
}

// policyFor is the policy for a port of a Service: one that names the port before one that does not, and the older one of two.
func (d *decision) policyFor(service key, port string) *policy {
	var general *policy
	for _, p := range d.backendPolicies[service] {
		for _, t := range p.Spec.TargetRefs {
			section := string(deref(t.SectionName, ""))
			if t.Group != "" || t.Kind != kindService || string(t.Name) != service.name || p.lost[service.String()+" "+section] {
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
