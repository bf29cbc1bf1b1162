package authz

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Forbidden returns the 403 response to a request that was not allowed, in upstream's words.
func Forbidden(a *Attributes, reason string) *apierrors.StatusError {
	// Parts of the text come from the client, and a browser may display it.
	text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(forbiddenText(a))
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(text))
}

func forbiddenText(a *Attributes) string {
	name := ""
	if a.User != nil {
		name = a.User.GetName()
	}
	if !a.IsResource {
		return fmt.Sprintf("User %q cannot %s path %q", name, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	scope := "at the cluster scope"
	if a.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.Verb, resource, a.Group, scope)
}
