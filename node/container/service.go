package container

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serviceEnv says where the Services of a namespace are, if links are wanted, and where the API is in any case.
func (m *Maker) serviceEnv(namespace string, links bool) map[string]string {
	out := map[string]string{}
	if m.Services == nil {
		return out
	}
	// One's own Service with the name of the API's comes later and wins.
	if o, ok := m.Services.Get(metav1.NamespaceDefault, "kubernetes"); ok {
		addService(out, o.(*corev1.Service))
	}
	if !links {
		return out
	}
	for o := range m.Services.List(namespace) {
		addService(out, o.(*corev1.Service))
	}
	return out
}

// addService adds the variables of one Service, under the names that links between containers had once.
func addService(out map[string]string, s *corev1.Service) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return
	}
	name := variable(s.Name)
	out[name+"_SERVICE_HOST"] = ip
	out[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		number := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			out[name+"_SERVICE_PORT_"+variable(p.Name)] = number
		}
		protocol := strings.ToLower(string(p.Protocol))
		if protocol == "" {
			protocol = "tcp"
		}
		url := protocol + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			out[name+"_PORT"] = url
		}
		prefix := fmt.Sprintf("%s_PORT_%s_%s", name, number, strings.ToUpper(protocol))
		out[prefix], out[prefix+"_PROTO"], out[prefix+"_PORT"], out[prefix+"_ADDR"] = url, protocol, number, ip
	}
}

func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
