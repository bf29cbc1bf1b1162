package admission

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

// Sysctls are the sysctls that Pods may set. Each belongs to a namespace that a Pod has for itself; otherwise it would
// change the node.
type Sysctls struct {
	names, prefixes map[string]sysctl.Namespace
}

// safeSysctls returns the sysctls that cannot affect other Pods, with the version of the kernel since which they are
// namespaced.
func safeSysctls() []struct{ name, since string } {
	return []struct{ name, since string }{
		{"kernel.shm_rmid_forced", ""}, {"net.ipv4.ip_local_port_range", ""}, {"net.ipv4.tcp_syncookies", ""},
		{"net.ipv4.ping_group_range", ""},
		{"net.ipv4.ip_unprivileged_port_start", ""}, {"net.ipv4.ip_local_reserved_ports", "3.16"}, {"net.ipv4.tcp_keepalive_time", "4.5"},
		{"net.ipv4.tcp_fin_timeout", "4.6"}, {"net.ipv4.tcp_keepalive_intvl", "4.5"}, {"net.ipv4.tcp_keepalive_probes", "4.5"},
		{"net.ipv4.tcp_rmem", "4.15"}, {"net.ipv4.tcp_wmem", "4.15"}, {"net.ipv4.tcp_slow_start_after_idle", "4.15"},
		{"net.ipv4.tcp_notsent_lowat", "4.6"},
	}
}

// NewSysctls returns the safe sysctls that a kernel has, and those that the administrator allows: names, or prefixes
// that end in "*".
func NewSysctls(kernel string, unsafe []string) (Sysctls, error) {
	s := Sysctls{names: map[string]sysctl.Namespace{}, prefixes: map[string]sysctl.Namespace{}}
	has, err := version.ParseGeneric(kernel)
	allowed := unsafe
	for _, x := range safeSysctls() {
		if x.since == "" || err == nil && has.AtLeast(version.MustParseGeneric(x.since)) {
			allowed = append(allowed[:len(allowed):len(allowed)], x.name)
		}
	}
	for _, pattern := range allowed {
		if strings.Trim(pattern, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./*") != "" || len(pattern) > 253 ||
			pattern == "" {
			return Sysctls{}, fmt.Errorf("sysctl %q must have at most 253 characters, of letters, digits, '-', '_', '.' and '/', and may end in '*'", pattern)
		}
		space, name, prefix := sysctl.GetNamespace(pattern)
		if space == sysctl.UnknownNamespace {
			return Sysctls{}, fmt.Errorf("the sysctls %q are not known to be namespaced", name)
		}
		if prefix {
			s.prefixes[name] = space
		} else {
			s.names[name] = space
		}
	}
	return s, nil
}

// check rejects a Pod that sets a sysctl it may not set.
func (s Sysctls) check(p *corev1.Pod) error {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for _, c := range p.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(c.Name)
		space, ok := s.names[name]
		for prefix, of := range s.prefixes {
			if !ok && strings.HasPrefix(name, prefix) {
				space, ok = of, true
			}
		}
		if !ok {
			return fmt.Errorf("%q not allowlisted", name)
		}
		if space == sysctl.IPCNamespace && p.Spec.HostIPC || space == sysctl.NetNamespace && p.Spec.HostNetwork ||
			space == sysctl.UserNamespace && (p.Spec.HostUsers == nil || *p.Spec.HostUsers) {
			return fmt.Errorf("%q not allowed with host %s enabled", name, space)
		}
	}
	return nil
}
