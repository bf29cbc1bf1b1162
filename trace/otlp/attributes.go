package otlp

import (
	"strings"
	"time"

	"proa.dev/hop"
	"proa.dev/trace"
)

// resourceAttributes describe the process that has recorded spans.
func resourceAttributes(cluster, process string) []attribute {
	var s span
	s.text("service.name", "proa")
	s.text("service.instance.id", process)
	s.text("k8s.cluster.uid", cluster)
	return s.Attributes
}

// describe adds the attributes of a span: OpenTelemetry's k8s.* where it has a name for something, and proa.* for the rest.
func (s *span) describe(from *trace.Span) {
	if from.Hop != 0 {
		s.number("proa.hop", int64(from.Hop))
		s.text("proa.hop.name", from.HopName)
	}
	if from.Wait > 0 {
		s.number("proa.wait_ns", int64(from.Wait/time.Nanosecond))
	}
	s.flag("proa.open", from.Open)
	s.flag("proa.critical", from.Critical)
	if from.Hidden {
		s.flag("proa.hidden", true)
		return
	}
	s.text("enduser.id", from.Actor)
	s.text("audit-id", from.AuditID)
	s.text("http.request.method", methodOf(from))
	s.text("k8s.node.name", nodeOf(from))
	s.text("k8s.container.name", containerOf(from))
	s.text("proa.detail", from.Detail)
	s.object(&from.Object)
	if from.Revision != 0 {
		s.number("proa.object.revision", from.Revision)
	}
}

// methodOf returns the method of a request over HTTP, which has an ID for the audit log, by the verb with which package trace begins the
// name of its span. Callers in the server's process send no HTTP.
func methodOf(s *trace.Span) string {
	if s.AuditID == "" || s.Parent != "" || s.Hop != 0 {
		return ""
	}
	switch verb, _, _ := strings.Cut(s.Name, " "); verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "patch":
		return "PATCH"
	case "delete", "deletecollection":
		return "DELETE"
	}
	return ""
}

// nodeOf returns the name of the node that did the work of a span. The attributes of a span about a Node are those of its object.
func nodeOf(s *trace.Span) string {
	if node, ok := strings.CutPrefix(s.Actor, "system:node:"); ok && s.Object.Resource != "nodes" {
		return node
	}
	return ""
}

// containerOf returns the name of the container that work on a node is about, which package trace puts into the name of the span.
func containerOf(s *trace.Span) string {
	if s.Parent != "" || s.Hop != int(hop.Node) || s.Object.Resource != "pods" {
		return ""
	}
	if name, ok := strings.CutPrefix(s.Name, "container "); ok {
		return name
	}
	_, name, _ := strings.Cut(s.Name, " probe of ")
	return name
}

// object adds the attributes of the object of a span. The UID is always among them: a name may be used again.
func (s *span) object(o *trace.Ref) {
	if o.Resource == "" {
		return
	}
	if o.Resource != "namespaces" {
		s.text("k8s.namespace.name", o.Namespace)
	}
	resource := o.Resource
	if o.Group != "" {
		resource += "." + o.Group
	}
	s.text("proa.object.resource", resource)
	kind := conventionalName(resource)
	switch {
	case resource == "namespaces":
		s.text("k8s.namespace.name", o.Name)
		s.text("proa.object.uid", string(o.UID))
	case kind != "":
		s.text("k8s."+kind+".name", o.Name)
		s.text("k8s."+kind+".uid", string(o.UID))
	default:
		s.text("proa.object.name", o.Name)
		s.text("proa.object.uid", string(o.UID))
	}
}

// conventionalName returns how OpenTelemetry's attributes call the kind of a resource; empty if they have no name and UID for it.
func conventionalName(resource string) string {
	switch resource {
	case "pods":
		return "pod"
	case "nodes":
		return "node"
	case "services":
		return "service"
	case "deployments.apps":
		return "deployment"
	case "replicasets.apps":
		return "replicaset"
	case "statefulsets.apps":
		return "statefulset"
	case "daemonsets.apps":
		return "daemonset"
	case "jobs.batch":
		return "job"
	case "cronjobs.batch":
		return "cronjob"
	case "horizontalpodautoscalers.autoscaling":
		return "hpa"
	case "replicationcontrollers":
		return "replicationcontroller"
	case "resourcequotas":
		return "resourcequota"
	case "persistentvolumes":
		return "persistentvolume"
	case "persistentvolumeclaims":
		return "persistentvolumeclaim"
	}
	return ""
}

// text adds an attribute unless it is empty.
func (s *span) text(key, v string) {
	if v != "" {
		s.Attributes = append(s.Attributes, attribute{Key: key, Value: value{Text: new(cut(v))}})
	}
}

func (s *span) number(key string, v int64) {
	s.Attributes = append(s.Attributes, attribute{Key: key, Value: value{Number: new(decimal(v))}})
}

// flag adds an attribute if it is true.
func (s *span) flag(key string, v bool) {
	if v {
		s.Attributes = append(s.Attributes, attribute{Key: key, Value: value{Bool: &v}})
	}
}
