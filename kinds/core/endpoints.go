package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// Endpoints are the addresses behind a service in the form before EndpointSlices.
func Endpoints() *kind.Def {
	return kind.Define(kind.Resource[corev1.Endpoints]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Endpoints"}, Plural: "endpoints", Singular: "endpoints",
			Short:         []string{"ep"},
			StorageFolder: "services/endpoints", CreateOnUpdate: true,
			Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		},
		Default: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					defaulting.IfZero(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		Validate: validateEndpoints,
		Warn:     func(e, _ *corev1.Endpoints) []string { return endpointsWarnings(e) },
		Columns: []kind.Column[corev1.Endpoints]{
			kind.NameColumn[corev1.Endpoints](),
			{Name: "Endpoints", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"],
				Value: func(e *corev1.Endpoints) any { return endpointsText(e) }},
			kind.AgeColumn[corev1.Endpoints](),
		},
	})
}

// endpointsText shows the first three addresses and how many more there are.
func endpointsText(e *corev1.Endpoints) string {
	if len(e.Subsets) == 0 {
		return "<none>"
	}
	const most = 3
	var list []string
	count, more := 0, false
	add := func(addresses []corev1.EndpointAddress, text func(ip string) string) {
		count += len(addresses)
		for _, a := range addresses {
			if len(list) == most {
				more = true
				return
			}
			list = append(list, text(a.IP))
		}
	}
	for _, s := range e.Subsets {
		if len(s.Ports) == 0 {
			add(s.Addresses, func(ip string) string { return ip })
		}
		for _, p := range s.Ports {
			add(s.Addresses, func(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(int(p.Port))) })
		}
	}
	text := strings.Join(list, ",")
	if more {
		return fmt.Sprintf("%s + %d more...", text, count-most)
	}
	return text
}

func validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	var subsets field.ErrorList
	for i := range e.Subsets {
		subsets = append(subsets, validateSubset(&e.Subsets[i], field.NewPath("subsets").Index(i))...)
	}
	// What an older server accepted stays acceptable while it is not touched.
	if len(subsets) > 0 && old != nil && equality.Semantic.DeepEqual(old.Subsets, e.Subsets) {
		return nil
	}
	return subsets
}

func validateSubset(s *corev1.EndpointSubset, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
		errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
	}
	for i := range s.Addresses {
		errs = append(errs, validateEndpointAddress(&s.Addresses[i], path.Child("addresses").Index(i))...)
	}
	for i := range s.NotReadyAddresses {
		errs = append(errs, validateEndpointAddress(&s.NotReadyAddresses[i], path.Child("notReadyAddresses").Index(i))...)
	}
	for i := range s.Ports {
		errs = append(errs, validateEndpointPort(&s.Ports[i], len(s.Ports) > 1, path.Child("ports").Index(i))...)
	}
	return errs
}

func validateEndpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := check.IP(a.IP, path.Child("ip"), nil)
	if a.Hostname != "" {
		errs = append(errs, check.DNSLabel(a.Hostname, path.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, check.DNSSubdomain(*a.NodeName, path.Child("nodeName"))...)
	}
	return append(errs, check.EndpointIP(a.IP, path.Child("ip"))...)
}

func validateEndpointPort(p *corev1.EndpointPort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = append(errs, check.DNSLabel(p.Name, path.Child("name"))...)
	case named:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, check.Messages(p.Port, path.Child("port"), validation.IsValidPortNum(int(p.Port)))...)
	errs = append(errs, check.OneOfOrRequired(p.Protocol, path.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP,
		corev1.ProtocolUDP)...)
	if p.AppProtocol != nil {
		errs = append(errs, check.QualifiedName(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}

func endpointsWarnings(e *corev1.Endpoints) []string {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	var warnings []string
	for i, s := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		for j, a := range s.Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range s.NotReadyAddresses {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
	}
	return warnings
}
