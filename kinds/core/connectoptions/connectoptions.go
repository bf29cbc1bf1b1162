// Package connectoptions translates between the query of a streaming request (exec, attach, port-forward, proxy) and the options
// object of the API that discovery shows for it and that admission plugins see.
package connectoptions

import (
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/streamoptions"
)

// Body declares the options type of a stream, whose fields clients send as query parameters.
func Body(name string, options func(c *kind.Connection) runtime.Object) *kind.Body {
	return &kind.Body{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(name), Options: options, Choose: chooseOptions}
}

// chooseOptions writes options that admission plugins have changed back into the request.
func chooseOptions(c *kind.Connection, options runtime.Object) {
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		c.Query = streamoptions.Command{Container: o.Container, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY,
			Args: o.Command}.APIQuery()
	case *corev1.PodAttachOptions:
		c.Query = streamoptions.Command{Container: o.Container, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}.APIQuery()
	case *corev1.PodPortForwardOptions:
		c.Query = url.Values{}
		for _, p := range o.Ports {
			c.Query.Add("ports", strconv.Itoa(int(p)))
		}
	case *corev1.PodProxyOptions:
		c.Path = strings.TrimPrefix(o.Path, "/")
	case *corev1.NodeProxyOptions:
		c.Path = strings.TrimPrefix(o.Path, "/")
	case *corev1.ServiceProxyOptions:
		c.Path = strings.TrimPrefix(o.Path, "/")
	}
}

func optionsType(name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: name} }

// Exec returns the options of an exec, as admission sees them.
func Exec(c *kind.Connection) runtime.Object {
	o := streamoptions.ParseExec(c.Query)
	return &corev1.PodExecOptions{
		TypeMeta: optionsType("PodExecOptions"), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Container: o.Container,
		Command: o.Args,
	}
}

// Attach returns the options of an attach, as admission sees them.
func Attach(c *kind.Connection) runtime.Object {
	o := streamoptions.ParseAttach(c.Query)
	return &corev1.PodAttachOptions{
		TypeMeta: optionsType("PodAttachOptions"), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Container: o.Container,
	}
}

// PortForward omits ports that cannot be parsed; the connection is refused for them later.
func PortForward(c *kind.Connection) runtime.Object {
	ports, _ := streamoptions.ParsePorts(c.Query)
	return &corev1.PodPortForwardOptions{TypeMeta: optionsType("PodPortForwardOptions"), Ports: ports}
}

// PodProxy returns the options of a proxied request to a Pod, as admission sees them.
func PodProxy(c *kind.Connection) runtime.Object {
	return &corev1.PodProxyOptions{TypeMeta: optionsType("PodProxyOptions"), Path: pathOf(c)}
}

// NodeProxy returns the options of a proxied request to a node, as admission sees them.
func NodeProxy(c *kind.Connection) runtime.Object {
	return &corev1.NodeProxyOptions{TypeMeta: optionsType("NodeProxyOptions"), Path: pathOf(c)}
}

// ServiceProxy returns the options of a proxied request to a Service, as admission sees them.
func ServiceProxy(c *kind.Connection) runtime.Object {
	return &corev1.ServiceProxyOptions{TypeMeta: optionsType("ServiceProxyOptions"), Path: pathOf(c)}
}

// pathOf returns the path of a proxied request; empty if nothing follows the subresource.
func pathOf(c *kind.Connection) string {
	if c.Path == "" {
		return ""
	}
	return "/" + strings.TrimPrefix(c.Path, "/")
}

// ProxyVerbs returns the verbs that discovery shows for a proxy, which forwards every HTTP method.
func ProxyVerbs() []string { return []string{"create", "delete", "get", "patch", "update"} }
