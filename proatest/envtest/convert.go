package envtest

import (
	"fmt"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// convertLocally makes definitions use the local webhook server for conversion if the scheme has converters for their kind, and
// removes the conversion otherwise: manifests name a webhook in the cluster, which does not exist in a test.
func convertLocally(crds []*apiextensionsv1.CustomResourceDefinition, scheme *runtime.Scheme, options WebhookInstallOptions) error {
	if len(options.LocalServingCAData) == 0 {
		return nil
	}
	hostPort, err := options.hostPort()
	if err != nil {
		return err
	}
	for _, d := range crds {
		switch {
		case d.Spec.PreserveUnknownFields:
			continue
		case !options.IgnoreSchemeConvertible && !isConvertible(scheme, schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}):
			d.Spec.Conversion = nil
			continue
		}
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1", "v1beta1"},
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: new(fmt.Sprintf("https://%s/convert", hostPort)),
					CABundle: options.LocalServingCAData},
			},
		}
	}
	return nil
}

// isConvertible reports whether the scheme has several versions of a kind, one of which is a Hub while all others convert to and from it.
func isConvertible(scheme *runtime.Scheme, gk schema.GroupKind) bool {
	hubs, spokes := 0, 0
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.GroupKind() != gk || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		switch p := reflect.PointerTo(t); {
		case p.Implements(reflect.TypeFor[hub]()):
			hubs++
		case isSpoke(p):
			spokes++
		default:
			return false
		}
	}
	return hubs == 1 && spokes > 0
}

// hub has the methods of conversion.Hub of controller-runtime.
type hub interface {
	runtime.Object
	Hub()
}

// isSpoke reports whether a type implements conversion.Convertible of controller-runtime: ConvertTo(Hub) error and ConvertFrom(Hub) error.
// That interface names Hub, so only reflection recognizes it without importing it.
func isSpoke(t reflect.Type) bool {
	to, hasTo := t.MethodByName("ConvertTo")
	from, hasFrom := t.MethodByName("ConvertFrom")
	return hasTo && hasFrom && takesHub(to) && takesHub(from)
}

// takesHub reports whether a method takes a Hub and returns an error.
func takesHub(m reflect.Method) bool {
	t := m.Type // its first parameter is the receiver
	return t.NumIn() == 2 && t.NumOut() == 1 && t.In(1).Kind() == reflect.Interface && t.In(1).Implements(reflect.TypeFor[hub]()) &&
		t.Out(0) == reflect.TypeFor[error]()
}
