package container

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
)

const hostsPath = "/etc/hosts"

// hosts writes the /etc/hosts of a Pod and returns its mount; nil if the container mounts its own, or the Pod has no
// address yet. The file is rewritten in place: running containers have it mounted.
func (m *Maker) hosts(p *corev1.Pod, c *corev1.Container, ips []netip.Addr) (*cri.Mount, error) {
	for _, v := range c.VolumeMounts {
		if v.MountPath == hostsPath {
			return nil, nil
		}
	}
	if len(ips) == 0 && !p.Spec.HostNetwork {
		return nil, nil
	}
	var text string
	if p.Spec.HostNetwork {
		node, err := os.ReadFile(hostsPath)
		if err != nil {
			return nil, err
		}
		text = "# Kubernetes-managed hosts file (host network).\n" + string(node) + aliases(p.Spec.HostAliases)
	} else {
		name, domain, err := hostname(p, m.DNS.Domain)
		if err != nil {
			return nil, err
		}
		text = hostsText(ips, name, domain, p.Spec.HostAliases)
	}
	file := filepath.Join(m.PodDir(p.UID), "etc-hosts")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of the pod: %w", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // G302: every process of the Pod may read it
		return nil, err
	}
	return &cri.Mount{ContainerPath: hostsPath, HostPath: file, SelinuxRelabel: m.SELinux}, nil
}

// hostsText returns the /etc/hosts of a Pod with a network namespace of its own.
func hostsText(ips []netip.Addr, name, domain string, more []corev1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n" +
		"127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n")
	for _, ip := range ips {
		if domain != "" {
			fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, name, domain, name)
		} else {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	}
	return b.String() + aliases(more)
}

func aliases(list []corev1.HostAlias) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range list {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.String()
}
