package core

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
	"proa.dev/kinds/stream"
)

// connectLog leads to the log of a container. A pod that no node runs has written nothing.
func connectLog(ctx context.Context, d kind.Door, c *kind.Connection) (*kind.Target, error) {
	o, err := stream.Log(c.Query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	errs := stream.CheckLog(o)
	if o.Stream != nil && !c.Split {
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, c.Name, errs)
	}
	p, err := podOf(ctx, d, c)
	if err != nil {
		return nil, err
	}
	container, err := containerOf(p, o.Container)
	if err != nil || p.Spec.NodeName == "" {
		return nil, err
	}
	n, err := nodeOf(ctx, d, p)
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/containerLogs/%s/%s/%s", p.Namespace, p.Name, container)
	return &kind.Target{Node: n, Path: path, Query: stream.LogQuery(o), Shape: kind.Text, Flush: o.Follow}, nil
}

// connectExec leads to a new command in a container.
func connectExec(ctx context.Context, d kind.Door, c *kind.Connection) (*kind.Target, error) {
	return connectContainer(ctx, d, c, "exec", stream.Exec(c.Query))
}

// connectAttach leads to the process of a container.
func connectAttach(ctx context.Context, d kind.Door, c *kind.Connection) (*kind.Target, error) {
	return connectContainer(ctx, d, c, "attach", stream.Attach(c.Query))
}

func connectContainer(ctx context.Context, d kind.Door, c *kind.Connection, verb string, o stream.Command) (*kind.Target, error) {
	p, err := podOf(ctx, d, c)
	if err != nil {
		return nil, err
	}
	container, err := containerOf(p, o.Container)
	if err != nil {
		return nil, err
	}
	n, err := nodeOf(ctx, d, p)
	if err != nil {
		return nil, err
	}
	return &kind.Target{Node: n, Path: fmt.Sprintf("/%s/%s/%s/%s", verb, p.Namespace, p.Name, container), Query: o.Query()}, nil
}

// connectForward leads to ports of a pod.
func connectForward(ctx context.Context, d kind.Door, c *kind.Connection) (*kind.Target, error) {
	ports, err := stream.Ports(c.Query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	p, err := podOf(ctx, d, c)
	if err != nil {
		return nil, err
	}
	n, err := nodeOf(ctx, d, p)
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

// connectPod leads to a port of a pod that speaks HTTP: the one in the name, or the first that the pod declares.
func connectPod(ctx context.Context, d kind.Door, c *kind.Connection) (*kind.Target, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.Name)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", c.Name))
	}
	p, err := podOf(ctx, d, &kind.Connection{Namespace: c.Namespace, Name: name})
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
	return &kind.Target{Scheme: scheme, Host: host, On: p.Spec.NodeName, Path: c.Path, Shape: kind.Proxy}, nil
}

func podOf(ctx context.Context, d kind.Door, c *kind.Connection) (*corev1.Pod, error) {
	o, err := d.Get(ctx, podResource(), c.Namespace, c.Name)
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Pod), nil
}

// containerOf is the container that is meant: one that is there, or the only one.
func containerOf(p *corev1.Pod, name string) (string, error) {
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

// nodeOf is the node that runs a pod.
func nodeOf(ctx context.Context, d kind.Door, p *corev1.Pod) (*corev1.Node, error) {
	if p.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	o, err := d.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", p.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(podResource(), p.Spec.NodeName) // clients know it under this name
	}
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Node), nil
}
