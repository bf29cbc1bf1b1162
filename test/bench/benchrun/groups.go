package benchrun

import (
	"context"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"proa.dev/internal/wait"
	"proa.dev/test/upstream"
)

// Cluster is a client of all groups that controllers and the scheduler work with. It uses protobuf over one shared HTTP
// client.
type Cluster struct {
	Core, Apps, Batch, Discovery, coordination, Networking, Scheduling *rest.RESTClient
}

// NewCluster returns a client for the server of a kubeconfig.
func NewCluster(kubeconfig string) (*Cluster, error) {
	config, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType, config.AcceptContentTypes = Protobuf, Protobuf
	raw, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	for _, g := range []struct {
		into  **rest.RESTClient
		group schema.GroupVersion
		add   func(*runtime.Scheme) error
	}{
		{&c.Core, corev1.SchemeGroupVersion, corev1.AddToScheme},
		{&c.Apps, appsv1.SchemeGroupVersion, appsv1.AddToScheme},
		{&c.Batch, batchv1.SchemeGroupVersion, batchv1.AddToScheme},
		{&c.Discovery, discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme},
		{&c.coordination, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme},
		{&c.Networking, networkingv1.SchemeGroupVersion, networkingv1.AddToScheme},
		{&c.Scheduling, schedulingv1.SchemeGroupVersion, schedulingv1.AddToScheme},
	} {
		if *g.into, err = groupClient(config, raw, g.group, g.add); err != nil {
			return nil, fmt.Errorf("client of %s: %w", g.group, err)
		}
	}
	return c, nil
}

func groupClient(config *rest.Config, raw *http.Client, group schema.GroupVersion, add func(*runtime.Scheme) error) (*rest.RESTClient,
	error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	own := rest.CopyConfig(config)
	own.APIPath = "/apis"
	if group.Group == "" {
		own.APIPath = "/api"
	}
	own.GroupVersion = &group
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientForConfigAndClient(own, raw)
}

// ResourceClient reads and writes the objects of one resource.
type ResourceClient struct {
	Door      *rest.RESTClient
	Namespace string
	Resource  string
	Fields    string // a field selector
}

// Create creates an object.
func (p ResourceClient) Create(ctx context.Context, object runtime.Object) error {
	return p.Door.Post().NamespaceIfScoped(p.Namespace, p.Namespace != "").Resource(p.Resource).Body(object).Do(ctx).Into(object)
}

// Get reads an object.
func (p ResourceClient) Get(ctx context.Context, name string, into runtime.Object) error {
	return p.Door.Get().NamespaceIfScoped(p.Namespace, p.Namespace != "").Resource(p.Resource).Name(name).Do(ctx).Into(into)
}

// Update updates an object.
func (p ResourceClient) Update(ctx context.Context, name string, object runtime.Object) error {
	return p.Door.Put().NamespaceIfScoped(p.Namespace, p.Namespace != "").Resource(p.Resource).Name(name).Body(object).Do(ctx).Into(object)
}

// Patch patches an object.
func (p ResourceClient) Patch(ctx context.Context, name string, patch []byte, into runtime.Object) error {
	return p.Door.Patch(types.StrategicMergePatchType).NamespaceIfScoped(p.Namespace,
		p.Namespace != "").Resource(p.Resource).Name(name).Body(patch).Do(ctx).Into(into)
}

// PatchStatus patches the status of an object.
func (p ResourceClient) PatchStatus(ctx context.Context, name string, patch []byte, into runtime.Object) error {
	return p.Door.Patch(types.StrategicMergePatchType).NamespaceIfScoped(p.Namespace,
		p.Namespace != "").Resource(p.Resource).Name(name).SubResource("status").Body(patch).Do(ctx).Into(into)
}

// Remove deletes an object.
func (p ResourceClient) Remove(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	r := p.Door.Delete().NamespaceIfScoped(p.Namespace, p.Namespace != "").Resource(p.Resource).Name(name)
	if options != nil {
		r = r.Body(options)
	}
	return r.Do(ctx).Error()
}

// Seen is an object that a watch showed, and the time when it did.
type Seen struct {
	Kind   watch.EventType
	Object runtime.Object
	At     time.Time
}

// Follow shows every event of a resource, beginning with the existing objects. The watch is open when it returns. A
// watch that ends is opened again, and shows all existing objects once more.
func (p ResourceClient) Follow(ctx context.Context, show func(Seen)) error {
	open := func() (watch.Interface, error) {
		r := p.Door.Get().NamespaceIfScoped(p.Namespace, p.Namespace != "").Resource(p.Resource).Param("watch",
			"true").Param("timeoutSeconds", "3000")
		if p.Fields != "" {
			r = r.Param("fieldSelector", p.Fields)
		}
		return r.Watch(ctx)
	}
	w, err := open()
	if err != nil {
		return fmt.Errorf("watch %s: %w", p.Resource, err)
	}
	go func() {
		for ctx.Err() == nil {
			for event := range w.ResultChan() {
				if event.Type != watch.Error {
					show(Seen{event.Type, event.Object, time.Now()})
				}
			}
			w.Stop()
			for ctx.Err() == nil {
				if w, err = open(); err == nil {
					break
				}
				_ = wait.Sleep(ctx, 100*time.Millisecond)
			}
		}
		if w != nil {
			w.Stop()
		}
	}()
	return nil
}

// NewNamespace creates a namespace and waits until Pods can be created in it.
func (c *Cluster) NewNamespace(ctx context.Context, prefix string) (string, error) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + prefix + "-", Labels: OwnLabels()}}
	if err := (ResourceClient{Door: c.Core, Resource: "namespaces"}).Create(ctx, object); err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	return object.Name, c.waitServiceAccount(ctx, object.Name)
}

func (c *Cluster) waitServiceAccount(ctx context.Context, namespace string) error {
	accounts := ResourceClient{Door: c.Core, Namespace: namespace, Resource: "serviceaccounts"}
	err := WaitUntil(ctx, time.Minute, func() (bool, error) {
		err := accounts.Get(ctx, "default", &corev1.ServiceAccount{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for the ServiceAccount of %s: %w", namespace, err)
	}
	return nil
}

// OwnLabels returns the labels of objects that must be removed from a cluster that goes on after the run.
func OwnLabels() map[string]string { return map[string]string{"proa.dev/bench": "true"} }
