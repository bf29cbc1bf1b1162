package container

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serviceEnv returns the variables of the Services of a namespace, if service links are enabled, and of the API server
// in any case.
func (m *Maker) serviceEnv(namespace string, links bool) map[string]string {
	out := map[string]string{}
	if m.Services == nil {
		return out
	}
	// A Service of the namespace that is called kubernetes comes later and takes precedence.
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

// addService adds the variables of one Service, including those in the format of Docker links.
func addService(out map[string]string, s *corev1.Service) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return
	}
	name := envName(s.Name)
	out[name+"_SERVICE_HOST"] = ip
	out[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		number := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			out[name+"_SERVICE_PORT_"+envName(p.Name)] = number
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

func envName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
