package trace

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NoNamespace is the namespace of the traces of objects that have none.
const NoNamespace = "default"

// Name returns the name of the trace of an object: its resource and its name, as in deployments.apps:web.
func Name(r Ref) string {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}.String() + ":" + r.Name
}

// NamespaceOf returns the namespace of the trace of an object.
func NamespaceOf(r Ref) string {
	if r.Namespace == "" {
		return NoNamespace
	}
	return r.Namespace
}

// ParseName reads the name of a trace. The namespace is not set: whether the resource has one is not in the name.
func ParseName(name string) (Ref, bool) {
	resource, object, found := strings.Cut(name, ":")
	gr := schema.ParseGroupResource(resource)
	return Ref{Group: gr.Group, Resource: gr.Resource, Name: object}, found && gr.Resource != "" && object != ""
}

// GroupVersion is the group and version of traces.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// TracesResource is the resource of traces.
func TracesResource() schema.GroupResource {
	return schema.GroupResource{Group: Group, Resource: "traces"}
}

// WireTracesResource is the resource of traces whose spans have the bodies of requests and answers.
func WireTracesResource() schema.GroupResource {
	return schema.GroupResource{Group: Group, Resource: "wiretraces"}
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Trace{}, &TraceList{}, &WireTrace{}, &WireTraceList{})
	return nil
}

// DeepCopyObject returns a copy.
func (t *Trace) DeepCopyObject() runtime.Object {
	if t == nil {
		return nil
	}
	return t.DeepCopy()
}

// DeepCopyObject returns a copy.
func (t *WireTrace) DeepCopyObject() runtime.Object {
	if t == nil {
		return nil
	}
	return &WireTrace{Trace: *t.DeepCopy()}
}

// DeepCopyObject returns a copy.
func (l *WireTraceList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &WireTraceList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, WireTrace{Trace: *l.Items[i].DeepCopy()})
	}
	return out
}

// DeepCopyObject returns a copy.
func (l *TraceList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := &TraceList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// NotAnswered comes before the names of servers in an error about a trace that is not found: one of them may have its records.
const NotAnswered = "other servers did not answer: "
