package envtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// defaultInterval and defaultMaxTime are how often and how long the environment checks whether installed objects are served.
const (
	defaultInterval = 50 * time.Millisecond
	defaultMaxTime  = 10 * time.Second
)

// object is an object with its name.
type object interface {
	runtime.Object
	metav1.Object
}

// addToScheme adds definitions to the Scheme of client-go, as envtest does: suites read them with it.
var addToScheme = sync.OnceValue(func() error { return apiextensionsv1.AddToScheme(scheme.Scheme) })

// background returns the context of all requests, because the functions of envtest have no context parameter.
func background() context.Context { return context.Background() }

// clientFor returns a client for the resources of one group and version.
func clientFor(config *rest.Config, gv schema.GroupVersion) (*rest.RESTClient, error) {
	if err := addToScheme(); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &gv
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.ContentType, c.AcceptContentTypes, c.NegotiatedSerializer = runtime.ContentTypeJSON, runtime.ContentTypeJSON,
		scheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(c)
}

// ensure creates an object without a namespace, or replaces an existing one.
func ensure(c *rest.RESTClient, resource string, o object) error {
	ctx := background()
	for {
		existing := o.DeepCopyObject().(object)
		err := c.Get().Resource(resource).Name(o.GetName()).Do(ctx).Into(existing)
		if apierrors.IsNotFound(err) {
			o.SetResourceVersion("")
			return c.Post().Resource(resource).Body(o).Do(ctx).Into(o)
		}
		if err != nil {
			return err
		}
		o.SetResourceVersion(existing.GetResourceVersion())
		if err := c.Put().Resource(resource).Name(o.GetName()).Body(o).Do(ctx).Into(o); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// poll calls a function at intervals until it returns true. An error ends it at once.
func poll(interval, maxTime time.Duration, what string, is func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(background(), maxTime)
	defer cancel()
	for {
		if ok, err := is(ctx); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: not within %v", what, maxTime)
		case <-time.After(interval):
		}
	}
}
