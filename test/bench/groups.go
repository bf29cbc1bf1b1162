package main

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

	"proa.dev/test/upstream"
)

// cluster is a client of all groups that the loops and the scheduler work
// with. Like client it speaks protobuf, over one shared HTTP client.
type cluster struct {
	core, apps, batch, discovery, coordination, networking, scheduling *rest.RESTClient
}

func newCluster(kubeconfig string) (*cluster, error) {
	config, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	raw, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	for _, g := range []struct {
		into  **rest.RESTClient
		group schema.GroupVersion
		add   func(*runtime.Scheme) error
	}{
		{&c.core, corev1.SchemeGroupVersion, corev1.AddToScheme},
		{&c.apps, appsv1.SchemeGroupVersion, appsv1.AddToScheme},
		{&c.batch, batchv1.SchemeGroupVersion, batchv1.AddToScheme},
		{&c.discovery, discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme},
		{&c.coordination, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme},
		{&c.networking, networkingv1.SchemeGroupVersion, networkingv1.AddToScheme},
		{&c.scheduling, schedulingv1.SchemeGroupVersion, schedulingv1.AddToScheme},
	} {
		if *g.into, err = groupClient(config, raw, g.group, g.add); err != nil {
			return nil, fmt.Errorf("client of %s: %w", g.group, err)
		}
	}
	return c, nil
}

func groupClient(config *rest.Config, raw *http.Client, group schema.GroupVersion, add func(*runtime.Scheme) error) (*rest.RESTClient, error) {
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

// place is where objects of one kind are.
type place struct {
	door      *rest.RESTClient
	namespace string
	resource  string
	fields    string // a field selector
}

func (p place) create(ctx context.Context, object runtime.Object) error {
	return p.door.Post().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Body(object).Do(ctx).Into(object)
}

func (p place) get(ctx context.Context, name string, into runtime.Object) error {
	return p.door.Get().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(name).Do(ctx).Into(into)
}

func (p place) update(ctx context.Context, name string, object runtime.Object) error {
	return p.door.Put().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(name).Body(object).Do(ctx).Into(object)
}

func (p place) patch(ctx context.Context, name string, patch []byte, into runtime.Object) error {
	return p.door.Patch(types.StrategicMergePatchType).NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(name).Body(patch).Do(ctx).Into(into)
}

func (p place) patchStatus(ctx context.Context, name string, patch []byte, into runtime.Object) error {
	return p.door.Patch(types.StrategicMergePatchType).NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(name).SubResource("status").Body(patch).Do(ctx).Into(into)
}

func (p place) remove(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	r := p.door.Delete().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Name(name)
	if options != nil {
		r = r.Body(options)
	}
	return r.Do(ctx).Error()
}

// seen is an object that a watch showed, and when.
type seen struct {
	kind   watch.EventType
	object runtime.Object
	at     time.Time
}

// follow shows every event of a place, beginning with what is there. The watch
// is open when it returns. A watch that ends is opened again, which shows
// everything that is there once more.
func (p place) follow(ctx context.Context, show func(seen)) error {
	open := func() (watch.Interface, error) {
		r := p.door.Get().NamespaceIfScoped(p.namespace, p.namespace != "").Resource(p.resource).Param("watch", "true").Param("timeoutSeconds", "3000")
		if p.fields != "" {
			r = r.Param("fieldSelector", p.fields)
		}
		return r.Watch(ctx)
	}
	w, err := open()
	if err != nil {
		return fmt.Errorf("watch %s: %w", p.resource, err)
	}
	go func() {
		for ctx.Err() == nil {
			for event := range w.ResultChan() {
				if event.Type != watch.Error {
					show(seen{event.Type, event.Object, time.Now()})
				}
			}
			w.Stop()
			for ctx.Err() == nil {
				if w, err = open(); err == nil {
					break
				}
				_ = sleep(ctx, 100*time.Millisecond)
			}
		}
		if w != nil {
			w.Stop()
		}
	}()
	return nil
}

// newNamespace makes a namespace and waits until Pods can be made in it.
func (c *cluster) newNamespace(ctx context.Context, prefix string) (string, error) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + prefix + "-", Labels: ours()}}
	if err := (place{door: c.core, resource: "namespaces"}).create(ctx, object); err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	return object.Name, c.waitServiceAccount(ctx, object.Name)
}

func (c *cluster) waitServiceAccount(ctx context.Context, namespace string) error {
	accounts := place{door: c.core, namespace: namespace, resource: "serviceaccounts"}
	err := until(ctx, time.Minute, func() (bool, error) {
		err := accounts.get(ctx, "default", &corev1.ServiceAccount{})
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

// ours labels what has to be removed from a cluster that is not thrown away.
func ours() map[string]string { return map[string]string{"proa.dev/bench": "true"} }

// until asks every few milliseconds.
func until(ctx context.Context, limit time.Duration, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
	}
}
