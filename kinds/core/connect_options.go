package core

import (
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/stream"
)

// optionsBody names the type that discovery shows for a stream, and that admission plugins see. Its fields come as query parameters.
func optionsBody(name string, options func(c *kind.Connection) runtime.Object) *kind.Body {
	return &kind.Body{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(name), Options: options, Choose: chooseOptions}
}

// chooseOptions writes options back into the request that they are of.
func chooseOptions(c *kind.Connection, options runtime.Object) {
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		c.Query = stream.Command{Container: o.Container, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Args: o.Command}.Request()
	case *corev1.PodAttachOptions:
		c.Query = stream.Command{Container: o.Container, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}.Request()
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

func execOptions(c *kind.Connection) runtime.Object {
	o := stream.Exec(c.Query)
	return &corev1.PodExecOptions{
		TypeMeta: optionsType("PodExecOptions"), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Container: o.Container, Command: o.Args,
	}
}

func attachOptions(c *kind.Connection) runtime.Object {
	o := stream.Attach(c.Query)
	return &corev1.PodAttachOptions{
		TypeMeta: optionsType("PodAttachOptions"), Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Container: o.Container,
	}
}

// forwardOptions leaves out ports that cannot be understood, for which the connection is refused later.
func forwardOptions(c *kind.Connection) runtime.Object {
	ports, _ := stream.Ports(c.Query)
	return &corev1.PodPortForwardOptions{TypeMeta: optionsType("PodPortForwardOptions"), Ports: ports}
}

func podProxyOptions(c *kind.Connection) runtime.Object {
	return &corev1.PodProxyOptions{TypeMeta: optionsType("PodProxyOptions"), Path: pathOf(c)}
}

func nodeProxyOptions(c *kind.Connection) runtime.Object {
	return &corev1.NodeProxyOptions{TypeMeta: optionsType("NodeProxyOptions"), Path: pathOf(c)}
}

func serviceProxyOptions(c *kind.Connection) runtime.Object {
	return &corev1.ServiceProxyOptions{TypeMeta: optionsType("ServiceProxyOptions"), Path: pathOf(c)}
}

// pathOf is the path of a proxied request, which has none if nothing follows the subresource.
func pathOf(c *kind.Connection) string {
	if c.Path == "" {
		return ""
	}
	return "/" + strings.TrimPrefix(c.Path, "/")
}
