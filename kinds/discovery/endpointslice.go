package discovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
)

// EndpointSlices are the addresses behind a service.
func EndpointSlices() *kind.Def {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return kind.Define(kind.Resource[discoveryv1.EndpointSlice]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
			Plural:           "endpointslices",
			Generation:       true,
		},
		Changed: func(s, old *discoveryv1.EndpointSlice) bool {
			return s.AddressType != old.AddressType || !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) ||
				!equality.Semantic.DeepEqual(s.Ports, old.Ports) || !equality.Semantic.DeepEqual(s.Labels, old.Labels)
		},
		Default: func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				if s.Ports[i].Name == nil {
					s.Ports[i].Name = new("")
				}
				if s.Ports[i].Protocol == nil {
					s.Ports[i].Protocol = new(corev1.ProtocolTCP)
				}
			}
		},
		Prepare:  prepareEndpointSlice,
		Validate: validateEndpointSlice,
		Warn:     warnEndpointSlice,
		Columns: []kind.Column[discoveryv1.EndpointSlice]{
			kind.NameColumn[discoveryv1.EndpointSlice](),
			{Name: "AddressType", Description: doc["addressType"],
				Value: func(s *discoveryv1.EndpointSlice) any { return string(s.AddressType) }},
			{Name: "Ports", Description: doc["ports"], Value: func(s *discoveryv1.EndpointSlice) any { return shortenList(portsText(s)) }},
			{Name: "Endpoints", Description: doc["endpoints"],
				Value: func(s *discoveryv1.EndpointSlice) any { return shortenList(addressesText(s)) }},
			kind.AgeColumn[discoveryv1.EndpointSlice](),
		},
	})
}

func portsText(s *discoveryv1.EndpointSlice) []string {
	var list []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			list = append(list, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			list = append(list, *p.Name)
		default:
			list = append(list, "*")
		}
	}
	return list
}

func addressesText(s *discoveryv1.EndpointSlice) []string {
	var list []string
	for _, e := range s.Endpoints {
		list = append(list, e.Addresses...)
	}
	return list
}

const shown = 3

func shortenList(list []string) string {
	if len(list) > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shown], ","), len(list)-shown)
	}
	if cell := strings.Join(list, ","); cell != "" {
		return cell
	}
	return "<unset>"
}

// prepareEndpointSlice drops the deprecated topology map, which this version cannot write; a node name that only the
// map has moves to its field.
func prepareEndpointSlice(s, old *discoveryv1.EndpointSlice) {
	var nodes []string
	if old != nil {
		if equality.Semantic.DeepEqual(old.Endpoints, s.Endpoints) {
			return
		}
		for _, e := range old.Endpoints {
			if name := e.DeprecatedTopology[corev1.LabelHostname]; name != "" {
				nodes = append(nodes, name)
			}
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		name, ok := e.DeprecatedTopology[corev1.LabelHostname]
		if e.NodeName == nil && ok && slices.Contains(nodes, name) && len(validation.NameIsDNSSubdomain(name, false)) == 0 {
			e.NodeName = &name
		}
		e.DeprecatedTopology = nil
	}
}

func warnEndpointSlice(s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, "spec.addressType: FQDN endpoints are deprecated")
	}
	// Slices of the built-in controllers get no warnings.
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return warnings
	}
	for i, e := range s.Endpoints {
		for j, address := range e.Addresses {
			if netutils.ParseIPSloppy(address) == nil {
				continue
			}
			warnings = append(warnings, utilvalidation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j),
				address)...)
		}
	}
	return warnings
}
