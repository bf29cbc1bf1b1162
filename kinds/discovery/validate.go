package discovery

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/lib/check"
)

const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxTopology  = 16
	maxHints     = 8
)

func validateEndpointSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	path := field.NewPath("addressType")
	var errs field.ErrorList
	unknown := s.AddressType != "" && !slices.Contains(addressTypes(), s.AddressType)
	if unknown && old != nil {
		errs = append(errs, field.NotSupported(path, s.AddressType, addressTypes()))
	}
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	endpoints, sizes := validateEndpoints(s, field.NewPath("endpoints"))
	// Unchanged endpoints are not validated again.
	if old == nil || !equality.Semantic.DeepEqual(old.Endpoints, s.Endpoints) {
		errs = append(errs, endpoints...)
	} else {
		sizes = nil
	}
	switch {
	case old != nil && s.AddressType == old.AddressType:
	case s.AddressType == "":
		errs = append(errs, field.Required(path, ""))
		if old != nil {
			errs = append(errs, check.ImmutableError(path))
		}
	case old != nil:
		errs = append(errs, check.ImmutableError(path))
	case unknown:
		errs = append(errs, field.NotSupported(path, s.AddressType, addressTypes()))
	}
	return append(errs, sizes...)
}

func addressTypes() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

// validateEndpoints returns the errors of declarative validation separately, because they are reported last.
func validateEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) (errs, declared field.ErrorList) {
	if len(s.Endpoints) > maxEndpoints {
		errs = append(errs, field.TooMany(path, len(s.Endpoints), maxEndpoints))
	}
	for i := range s.Endpoints {
		e, path := &s.Endpoints[i], path.Index(i)
		addresses := path.Child("addresses")
		if len(e.Addresses) == 0 {
			declared = append(declared, field.Required(addresses, ""))
		} else if len(e.Addresses) > maxAddresses {
			declared = append(declared, field.TooMany(addresses, len(e.Addresses), maxAddresses))
		}
		if len(s.Endpoints) > maxEndpoints {
			continue
		}
		for j, address := range e.Addresses {
			errs = append(errs, validateAddress(s.AddressType, address, addresses, j)...)
		}
		errs = append(errs, validateEndpoint(e, path)...)
	}
	return errs, declared
}

func validateAddress(kind discoveryv1.AddressType, address string, list *field.Path, i int) field.ErrorList {
	var errs field.ErrorList
	path := list.Index(i)
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		if errs = check.IP(address, path, nil); len(errs) > 0 {
			return errs
		}
		if !netutils.IsIPv4String(address) {
			errs = append(errs, field.Invalid(list, address, "must be an IPv4 address"))
		}
	case discoveryv1.AddressTypeIPv6:
		if errs = utilvalidation.IsValidIP(path, address); len(errs) > 0 {
			return errs
		}
		if !netutils.IsIPv6String(address) {
			errs = append(errs, field.Invalid(list, address, "must be an IPv6 address"))
		}
	case discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(path, address)
	default:
		return nil
	}
	return append(errs, check.EndpointIP(address, path)...)
}

func validateEndpoint(e *discoveryv1.Endpoint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := e.NodeName; n != nil {
		errs = append(errs, check.DNSSubdomain(*n, path.Child("nodeName"))...)
	}
	topology := path.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopology {
		errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopology))
	}
	errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if _, found := e.DeprecatedTopology[corev1.LabelTopologyZone]; found {
		errs = append(errs, field.InternalError(topology.Key(corev1.LabelTopologyZone),
			fmt.Errorf("reserved key was not removed in conversion")))
	}
	if h := e.Hostname; h != nil {
		errs = append(errs, check.DNSLabel(*h, path.Child("hostname"))...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(e.Hints, path.Child("hints"))...)
	}
	return errs
}

func validatePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	var names []string
	for i, p := range ports {
		path, name := path.Index(i), ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			errs = append(errs, check.DNSLabel(name, path.Child("name"))...)
		}
		if slices.Contains(names, name) {
			errs = append(errs, field.Duplicate(path.Child("name"), name))
		}
		names = append(names, name)
		switch {
		case p.Protocol == nil:
			errs = append(errs, field.Required(path.Child("protocol"), ""))
		case *p.Protocol != corev1.ProtocolTCP && *p.Protocol != corev1.ProtocolUDP && *p.Protocol != corev1.ProtocolSCTP:
			errs = append(errs, field.NotSupported(path.Child("protocol"), *p.Protocol,
				[]corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}))
		}
		if a := p.AppProtocol; a != nil {
			errs = append(errs, check.QualifiedName(*a, path.Child("appProtocol"))...)
		}
	}
	return errs
}

func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var zones, nodes []string
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	for _, list := range []struct {
		names []string
		path  *field.Path
		check func(string) []string
	}{
		{zones, path.Child("forZones"), utilvalidation.IsValidLabelValue},
		{nodes, path.Child("forNodes"), func(n string) []string { return validation.NameIsDNSSubdomain(n, false) }},
	} {
		if len(list.names) > maxHints {
			return append(errs, field.TooMany(list.path, len(list.names), maxHints))
		}
		for i, name := range list.names {
			path := list.path.Index(i).Child("name")
			if slices.Contains(list.names[:i], name) {
				errs = append(errs, field.Duplicate(path, name))
			}
			errs = append(errs, check.Messages(name, path, list.check(name))...)
		}
	}
	return errs
}
