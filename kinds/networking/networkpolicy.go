package networking

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// NetworkPolicies restrict the traffic from and to pods.
func NetworkPolicies() *kind.Def {
	return kind.Define(kind.Resource[networkingv1.NetworkPolicy]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
			Plural:           "networkpolicies", Short: []string{"netpol"},
			Generation: true,
		},
		Spec: func(n *networkingv1.NetworkPolicy) any { return &n.Spec },
		// An absent list and an empty one have different meanings here.
		Changed:  func(n, old *networkingv1.NetworkPolicy) bool { return !reflect.DeepEqual(n.Spec, old.Spec) },
		Default:  defaultNetworkPolicy,
		Validate: validateNetworkPolicy,
		Warn:     warnNetworkPolicy,
		Columns: []kind.Column[networkingv1.NetworkPolicy]{
			kind.NameColumn[networkingv1.NetworkPolicy](),
			{Name: "Pod-Selector", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
				Value: func(n *networkingv1.NetworkPolicy) any { return metav1.FormatLabelSelector(&n.Spec.PodSelector) }},
			kind.AgeColumn[networkingv1.NetworkPolicy](),
		},
	})
}

// rule is an ingress or an egress rule: both name ports and peers.
type rule struct {
	ports     []networkingv1.NetworkPolicyPort
	peers     []networkingv1.NetworkPolicyPeer
	path      *field.Path
	peersPath *field.Path
}

func rulesOf(n *networkingv1.NetworkPolicy) []rule {
	var rules []rule
	spec := field.NewPath("spec")
	for i, r := range n.Spec.Ingress {
		path := spec.Child("ingress").Index(i)
		rules = append(rules, rule{r.Ports, r.From, path, path.Child("from")})
	}
	for i, r := range n.Spec.Egress {
		path := spec.Child("egress").Index(i)
		rules = append(rules, rule{r.Ports, r.To, path, path.Child("to")})
	}
	return rules
}

func defaultNetworkPolicy(n *networkingv1.NetworkPolicy) {
	for _, r := range rulesOf(n) {
		for i := range r.ports {
			if r.ports[i].Protocol == nil {
				r.ports[i].Protocol = new(corev1.ProtocolTCP)
			}
		}
	}
	if len(n.Spec.PolicyTypes) == 0 {
		n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(n.Spec.Egress) > 0 {
			n.Spec.PolicyTypes = append(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func warnNetworkPolicy(n, _ *networkingv1.NetworkPolicy) []string {
	var warnings []string
	for _, r := range rulesOf(n) {
		for i, p := range r.peers {
			if p.IPBlock == nil {
				continue
			}
			path := r.peersPath.Index(i).Child("ipBlock")
			warnings = append(warnings, cidrWarnings(path.Child("cidr"), p.IPBlock.CIDR)...)
			for j, except := range p.IPBlock.Except {
				warnings = append(warnings, cidrWarnings(path.Child("except").Index(j), except)...)
			}
		}
	}
	return warnings
}

// cidrWarnings returns the warnings about a valid CIDR.
func cidrWarnings(path *field.Path, cidr string) []string {
	if _, _, err := netutils.ParseCIDRSloppy(cidr); err != nil {
		return nil
	}
	return utilvalidation.GetWarningsForCIDR(path, cidr)
}

// allowances tells which rules an updated policy may go on breaking.
type allowances struct {
	selectors metavalidation.LabelSelectorValidationOptions
	cidrs     []string
}

func allowancesOf(old *networkingv1.NetworkPolicy) allowances {
	var a allowances
	if old == nil {
		return a
	}
	a.selectors.AllowInvalidLabelValueInSelector = len(metavalidation.ValidateLabelSelector(&old.Spec.PodSelector, a.selectors, nil)) > 0
	for _, r := range rulesOf(old) {
		for _, p := range r.peers {
			if p.IPBlock != nil {
				a.cidrs = append(append(a.cidrs, p.IPBlock.CIDR), p.IPBlock.Except...)
			}
		}
	}
	return a
}

func validateNetworkPolicy(n, old *networkingv1.NetworkPolicy) field.ErrorList {
	allow, spec := allowancesOf(old), field.NewPath("spec")
	errs := metavalidation.ValidateLabelSelector(&n.Spec.PodSelector, allow.selectors, spec.Child("podSelector"))
	var last field.ErrorList
	for _, r := range rulesOf(n) {
		for i := range r.ports {
			errs = append(errs, validatePolicyPort(&r.ports[i], r.path.Child("ports").Index(i))...)
		}
		for i := range r.peers {
			e, l := validatePeer(&r.peers[i], r.peersPath.Index(i), allow)
			errs, last = append(errs, e...), append(last, l...)
		}
	}
	types := spec.Child("policyTypes")
	if len(n.Spec.PolicyTypes) > 2 {
		errs = append(errs, field.Invalid(types, n.Spec.PolicyTypes, "may not specify more than two policyTypes"))
		return append(errs, last...)
	}
	for i, t := range n.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			errs = append(errs, field.NotSupported(types.Index(i), t,
				[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}))
		}
	}
	return append(errs, last...)
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t := p.Protocol; t != nil && *t != corev1.ProtocolTCP && *t != corev1.ProtocolUDP && *t != corev1.ProtocolSCTP {
		errs = append(errs, field.NotSupported(path.Child("protocol"), *t,
			[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}))
	}
	last := func(text string) {
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(path.Child("endPort"), *p.EndPort, text))
		}
	}
	switch {
	case p.Port == nil:
		last("may not be specified when `port` is not specified")
	case p.Port.Type == intstr.String:
		last("may not be specified when `port` is non-numeric")
		errs = append(errs, check.Messages(p.Port.StrVal, path.Child("port"), utilvalidation.IsValidPortName(p.Port.StrVal))...)
	default:
		errs = append(errs, check.Messages(p.Port.IntVal, path.Child("port"), utilvalidation.IsValidPortNum(int(p.Port.IntVal)))...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			last("must be greater than or equal to `port`")
		}
		errs = append(errs, check.Messages(*p.EndPort, path.Child("endPort"), utilvalidation.IsValidPortNum(int(*p.EndPort)))...)
	}
	return errs
}

func validatePeer(p *networkingv1.NetworkPolicyPeer, path *field.Path, allow allowances) (errs, last field.ErrorList) {
	peers := 0
	if p.PodSelector != nil {
		peers++
		errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector, allow.selectors, path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		peers++
		errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector, allow.selectors, path.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		peers++
		e, l := validateIPBlock(p.IPBlock, path.Child("ipBlock"), allow.cidrs)
		errs, last = append(errs, e...), l
	}
	switch {
	case peers == 0:
		errs = append(errs, field.Required(path, "must specify a peer"))
	case peers > 1 && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return errs, last
}

func validateIPBlock(b *networkingv1.IPBlock, path *field.Path, old []string) (errs, last field.ErrorList) {
	if b.CIDR == "" {
		return nil, field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs = check.CIDR(b.CIDR, path.Child("cidr"), old)
	_, network, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs, nil
	}
	size, _ := network.Mask.Size()
	for i, text := range b.Except {
		path := path.Child("except").Index(i)
		errs = append(errs, check.CIDR(text, path, old)...)
		_, except, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if exceptSize, _ := except.Mask.Size(); !network.Contains(except.IP) || size >= exceptSize {
			errs = append(errs, field.Invalid(path, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs, nil
}
