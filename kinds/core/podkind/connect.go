package podkind

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/streamoptions"
)

// connectLog connects to the log of a container. The log of a pod that has no node is empty.
func connectLog(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	o, err := streamoptions.ParseLog(c.Query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	errs := streamoptions.ValidateLog(o)
	if o.Stream != nil && !c.Split {
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, c.Name, errs)
	}
	p, err := getPod(ctx, d, c)
	if err != nil {
		return nil, err
	}
	container, err := findContainer(p, o.Container)
	if err != nil || p.Spec.NodeName == "" {
		return nil, err
	}
	n, err := getNode(ctx, d, p)
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/containerLogs/%s/%s/%s", p.Namespace, p.Name, container)
	return &kind.Target{Node: n, Path: path, Query: streamoptions.LogQuery(o), Shape: kind.Text, Flush: o.Follow}, nil
}

// connectExec connects to a new command in a container.
func connectExec(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	return connectContainer(ctx, d, c, "exec", streamoptions.ParseExec(c.Query))
}

// connectAttach connects to the main process of a container.
func connectAttach(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	return connectContainer(ctx, d, c, "attach", streamoptions.ParseAttach(c.Query))
}

func connectContainer(ctx context.Context, d kind.Server, c *kind.Connection, verb string, o streamoptions.Command) (*kind.Target, error) {
	p, err := getPod(ctx, d, c)
	if err != nil {
		return nil, err
	}
	container, err := findContainer(p, o.Container)
	if err != nil {
		return nil, err
	}
	n, err := getNode(ctx, d, p)
	if err != nil {
		return nil, err
	}
	return &kind.Target{Node: n, Path: fmt.Sprintf("/%s/%s/%s/%s", verb, p.Namespace, p.Name, container), Query: o.NodeQuery()}, nil
}

// connectPortForward forwards ports of a pod.
func connectPortForward(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	ports, err := streamoptions.ParsePorts(c.Query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	p, err := getPod(ctx, d, c)
	if err != nil {
		return nil, err
	}
	n, err := getNode(ctx, d, p)
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	if len(ports) > 0 {
		texts := make([]string, len(ports))
		for i, port := range ports {
			texts[i] = strconv.Itoa(int(port))
		}
		q.Set("port", strings.Join(texts, ","))
	}
	return &kind.Target{Node: n, Path: fmt.Sprintf("/portForward/%s/%s", p.Namespace, p.Name), Query: q}, nil
}

// connectProxy proxies to an HTTP port of a pod: the one in the name, or the first that the pod declares.
func connectProxy(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.Name)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", c.Name))
	}
	p, err := getPod(ctx, d, &kind.Connection{Namespace: c.Namespace, Name: name})
	if err != nil {
		return nil, err
	}
	for i := range p.Spec.Containers {
		if ports := p.Spec.Containers[i].Ports; port == "" && len(ports) > 0 {
			port = strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	ip := net.ParseIP(podIP(p))
	if ip == nil || !ip.IsGlobalUnicast() {
		return nil, apierrors.NewBadRequest("address not allowed")
	}
	host := net.JoinHostPort(ip.String(), port)
	if port == "" {
		host = strings.TrimSuffix(host, ":")
	}
	return &kind.Target{Scheme: scheme, Host: host, NodeName: p.Spec.NodeName, Path: c.Path, Shape: kind.Proxy}, nil
}

// findContainer returns the name of the container that a request is for: the one it names, if it exists, or the only
// one of the pod.
func findContainer(p *corev1.Pod, name string) (string, error) {
	var all []string
	for i := range p.Spec.InitContainers {
		all = append(all, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		all = append(all, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		all = append(all, p.Spec.EphemeralContainers[i].Name)
	}
	if name != "" {
		for _, n := range all {
			if n == name {
				return name, nil
			}
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
	}
	switch len(p.Spec.Containers) {
	case 1:
		return p.Spec.Containers[0].Name, nil
	case 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", p.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", p.Name, all))
}

// getNode returns the node that runs a pod.
func getNode(ctx context.Context, d kind.Server, p *corev1.Pod) (*corev1.Node, error) {
	if p.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	o, err := d.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", p.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(podResource(), p.Spec.NodeName) // upstream names the resource so
	}
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Node), nil
}

func getPod(ctx context.Context, d kind.Server, c *kind.Connection) (*corev1.Pod, error) {
	o, err := d.Get(ctx, podResource(), c.Namespace, c.Name)
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Pod), nil
}
