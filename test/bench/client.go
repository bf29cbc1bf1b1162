package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"proa.dev/test/upstream"
)

// client is the one client that all measurements share: client-go's REST
// client with protobuf bodies over HTTP/2 and no limit on requests.
type client struct {
	rest *rest.RESTClient
	raw  *http.Client
	host string
}

// protobuf is the media type of bodies in both directions.
const protobuf = "application/vnd.kubernetes.protobuf"

func newClient(kubeconfig string) (*client, error) {
	config, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf
	raw, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client, err := newREST(config, raw)
	if err != nil {
		return nil, err
	}
	return client, nil
}

func newREST(config *rest.Config, raw *http.Client) (*client, error) {
	r, err := rest.RESTClientForConfigAndClient(config, raw)
	if err != nil {
		return nil, err
	}
	return &client{rest: r, raw: raw, host: strings.TrimSuffix(config.Host, "/")}, nil
}

// payload is the 1 KiB that every ConfigMap carries.
func payload() string { return strings.Repeat("0123456789abcdef", 64) }

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"payload": payload()},
	}
}

func (c *client) create(ctx context.Context, namespace, name string) error {
	return c.rest.Post().Namespace(namespace).Resource("configmaps").Body(configMap(namespace, name)).Do(ctx).Into(&corev1.ConfigMap{})
}

func (c *client) update(ctx context.Context, object *corev1.ConfigMap) error {
	return c.rest.Put().Namespace(object.Namespace).Resource("configmaps").Name(object.Name).Body(object).Do(ctx).Into(object)
}

func (c *client) get(ctx context.Context, namespace, name string) error {
	return c.rest.Get().Namespace(namespace).Resource("configmaps").Name(name).Do(ctx).Into(&corev1.ConfigMap{})
}

func (c *client) list(ctx context.Context, namespace string) error {
	return c.rest.Get().Namespace(namespace).Resource("configmaps").Do(ctx).Into(&corev1.ConfigMapList{})
}

func (c *client) remove(ctx context.Context, namespace, name string) error {
	return c.rest.Delete().Namespace(namespace).Resource("configmaps").Name(name).Do(ctx).Error()
}

// namespace makes a namespace of its own for a measurement.
func (c *client) namespace(ctx context.Context, prefix string) (string, error) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + prefix + "-"}}
	if err := c.rest.Post().Resource("namespaces").Body(object).Do(ctx).Into(object); err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	return object.Name, nil
}

// waitAccount waits until the default namespace has its ServiceAccount.
func waitAccount(ctx context.Context, s *upstream.System) error {
	c, err := newClient(s.Kubeconfig)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		err := c.rest.Get().Namespace("default").Resource("serviceaccounts").Name("default").Do(ctx).Error()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no default ServiceAccount: %w", err)
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

var errNoSamples = errors.New("nothing was measured")
