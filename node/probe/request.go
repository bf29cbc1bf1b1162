package probe

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// version is the Kubernetes release in the User-Agent.
const version = "1.37"

// Request makes the request of an HTTP handler. Without a host of its own it goes to ip. purpose is part of the
// User-Agent: "probe" or "lifecycle".
func Request(ctx context.Context, get *corev1.HTTPGetAction, c *corev1.Container, ip, purpose string) (*http.Request, error) {
	port, err := Port(get.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // it is too late to reject it
	}
	u.Scheme = strings.ToLower(cmp.Or(string(get.Scheme), "http"))
	u.Host = net.JoinHostPort(cmp.Or(get.Host, ip), strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, given := req.Header["User-Agent"]; !given {
		req.Header.Set("User-Agent", "kube-"+purpose+"/"+version)
	}
	if _, given := req.Header["Accept"]; !given {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// Port returns the port of a handler: a number, or a named port of the container.
func Port(port intstr.IntOrString, c *corev1.Container) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		n = 0
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				n = int(p.ContainerPort)
			}
		}
		if n == 0 {
			return 0, fmt.Errorf("port %q not found", port.StrVal)
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", n)
	}
	return n, nil
}
