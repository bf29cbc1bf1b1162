package container

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The limits of the kernel for a hostname, and for one with its domain.
const (
	maxHostname = 63
	maxFullName = 64
)

// hostname returns the hostname of a Pod, and its domain, which may be empty.
func hostname(p *corev1.Pod, clusterDomain string) (name, domain string, err error) {
	if o := p.Spec.HostnameOverride; o != nil {
		if bad := validation.IsDNS1123Subdomain(*o); len(bad) != 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *o, strings.Join(bad, ";"))
		}
		name, err = truncateHostname(p.Name, *o)
		return name, "", err
	}
	name = p.Name
	if p.Spec.Hostname != "" {
		if bad := validation.IsDNS1123Label(p.Spec.Hostname); len(bad) != 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", p.Spec.Hostname, strings.Join(bad, ";"))
		}
		name = p.Spec.Hostname
	}
	if name, err = truncateHostname(p.Name, name); err != nil {
		return "", "", err
	}
	if p.Spec.Subdomain != "" {
		if bad := validation.IsDNS1123Label(p.Spec.Subdomain); len(bad) != 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", p.Spec.Subdomain, strings.Join(bad, ";"))
		}
		domain = fmt.Sprintf("%s.%s.svc.%s", p.Spec.Subdomain, p.Namespace, clusterDomain)
	}
	return name, domain, nil
}

// truncateHostname shortens a hostname to the limit of the kernel. The result must not end with a dash or a dot.
func truncateHostname(podName, name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	short := strings.TrimRight(name[:maxHostname], "-.")
	if short == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", podName, name)
	}
	return short, nil
}

// unameHostname returns the hostname that uname reports in a Pod.
func unameHostname(p *corev1.Pod, clusterDomain string) (string, error) {
	name, domain, err := hostname(p, clusterDomain)
	if err != nil || domain == "" || p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN {
		return name, err
	}
	long := name + "." + domain
	if len(long) > maxFullName {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", long, maxFullName, len(long))
	}
	return long, nil
}
