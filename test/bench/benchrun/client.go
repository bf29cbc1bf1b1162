package benchrun

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

	"proa.dev/internal/wait"
	"proa.dev/test/upstream"
)

// Client is the one client that all measurements share: client-go's REST client with protobuf bodies over HTTP/2 and no
// rate limit.
type Client struct {
	Rest *rest.RESTClient
	Raw  *http.Client
	Host string
}

// Protobuf is the media type of bodies in both directions.
const Protobuf = "application/vnd.kubernetes.protobuf"

// NewClient returns a client for the server of a kubeconfig.
func NewClient(kubeconfig string) (*Client, error) {
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
	config.ContentType = Protobuf
	config.AcceptContentTypes = Protobuf
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

func newREST(config *rest.Config, raw *http.Client) (*Client, error) {
	r, err := rest.RESTClientForConfigAndClient(config, raw)
	if err != nil {
		return nil, err
	}
	return &Client{Rest: r, Raw: raw, Host: strings.TrimSuffix(config.Host, "/")}, nil
}

// payload returns the 1 KiB that every ConfigMap carries.
func payload() string { return strings.Repeat("0123456789abcdef", 64) }

// ConfigMap returns the object that requests create.
func ConfigMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"payload": payload()},
	}
}

// Create creates a ConfigMap.
func (c *Client) Create(ctx context.Context, namespace, name string) error {
	return c.Rest.Post().Namespace(namespace).Resource("configmaps").Body(ConfigMap(namespace, name)).Do(ctx).Into(&corev1.ConfigMap{})
}

// Update updates a ConfigMap.
func (c *Client) Update(ctx context.Context, object *corev1.ConfigMap) error {
	return c.Rest.Put().Namespace(object.Namespace).Resource("configmaps").Name(object.Name).Body(object).Do(ctx).Into(object)
}

// Get reads a ConfigMap.
func (c *Client) Get(ctx context.Context, namespace, name string) error {
	return c.Rest.Get().Namespace(namespace).Resource("configmaps").Name(name).Do(ctx).Into(&corev1.ConfigMap{})
}

// List lists the ConfigMaps of a namespace.
func (c *Client) List(ctx context.Context, namespace string) error {
	return c.Rest.Get().Namespace(namespace).Resource("configmaps").Do(ctx).Into(&corev1.ConfigMapList{})
}

// Remove deletes a ConfigMap.
func (c *Client) Remove(ctx context.Context, namespace, name string) error {
	return c.Rest.Delete().Namespace(namespace).Resource("configmaps").Name(name).Do(ctx).Error()
}

// Namespace creates a namespace for a measurement.
func (c *Client) Namespace(ctx context.Context, prefix string) (string, error) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + prefix + "-"}}
	if err := c.Rest.Post().Resource("namespaces").Body(object).Do(ctx).Into(object); err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	return object.Name, nil
}

// WaitAccount waits until the default namespace has its ServiceAccount.
func WaitAccount(ctx context.Context, s *upstream.System) error {
	c, err := NewClient(s.Kubeconfig)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		err := c.Rest.Get().Namespace("default").Resource("serviceaccounts").Name("default").Do(ctx).Error()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no default ServiceAccount: %w", err)
		}
		if err := wait.Sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

var errNoSamples = errors.New("nothing was measured")
