package lookup

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// webhookConfiguration is the part of webhook configurations of both kinds that tells their webhooks' names.
type webhookConfiguration struct {
	Webhooks []webhook `json:"webhooks"`
}

type webhook struct {
	Name string `json:"name"`
}

// HasWebhook tells whether a configuration of the resource has a webhook of the name. Seen is false when they cannot be read.
func HasWebhook(ctx context.Context, r *Reader, resource, name string) (has, seen bool) {
	from := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: resource}
	items, seen := List[webhookConfiguration](ctx, r, from, "", "")
	has = slices.ContainsFunc(items, func(c webhookConfiguration) bool { return slices.Contains(c.Webhooks, webhook{Name: name}) })
	return has, seen
}
