package run

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/flowcontrol"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/localvolume"
	"proa.dev/run/settings"
	"proa.dev/server/apiendpoints"
	"proa.dev/server/initialobjects"
)

// initialObjects returns initial objects: the APIServices, the Service default/kubernetes, and the FlowSchemas and priority
// levels that share out the server's capacity; with a node, the DNS Service and the StorageClass of local volumes too.
func (s *Server) initialObjects() []initialobjects.Object {
	var out []initialobjects.Object
	for _, o := range s.builtInAPIServices() {
		out = append(out, initialobjects.Object{Resource: schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"},
			Object: o})
	}
	for _, o := range flowcontrol.Schemas() {
		out = append(out, initialobjects.Object{Resource: schema.GroupResource{Group: "flowcontrol.apiserver.k8s.io",
			Resource: "flowschemas"}, Object: o})
	}
	for _, o := range flowcontrol.Levels() {
		out = append(out, initialobjects.Object{Resource: schema.GroupResource{Group: "flowcontrol.apiserver.k8s.io",
			Resource: "prioritylevelconfigurations"}, Object: o})
	}
	out = append(out, initialobjects.Object{Resource: gr.Services, Object: apiendpoints.Service(s.ServiceCIDRs[0], s.Reachable().Port())})
	if s.Node.Name != "" {
		out = append(out, initialobjects.Object{Resource: gr.Services, Object: s.dnsService()},
			initialobjects.Object{Resource: gr.StorageClasses, Object: localvolume.StorageClass()})
	}
	return out
}

// dnsService returns the Service kube-system/kube-dns, at whose address Pods reach the cluster's DNS. It has no
// endpoints, because every node answers there itself.
func (s *Server) dnsService() *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-dns",
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "DNS"},
		},
		Spec: corev1.ServiceSpec{IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), Ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
		}},
	}
	for _, p := range s.ServiceCIDRs {
		family := corev1.IPv4Protocol
		if p.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		out.Spec.ClusterIPs, out.Spec.IPFamilies = append(out.Spec.ClusterIPs,
			settings.DNSAddressIn(p).String()), append(out.Spec.IPFamilies, family)
	}
	if out.Spec.ClusterIP = out.Spec.ClusterIPs[0]; len(out.Spec.ClusterIPs) > 1 {
		out.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	return out
}
