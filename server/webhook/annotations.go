package webhook

import (
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"proa.dev/kinds/kind"
)

// notes writes the audit annotations about one call of a mutating webhook.
type notes struct {
	a            *kind.Admission
	round, index int
	hook         *hook
}

func (n notes) key(prefix string) string {
	return fmt.Sprintf("%swebhook.admission.k8s.io/round_%d_index_%d", prefix, n.round, n.index)
}

// mutation records whether the webhook has changed the object.
func (n notes) mutation(changed bool) {
	n.json(n.a.AddAuditAnnotation, n.key("mutation."), struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{n.hook.configuration, n.hook.name, changed})
}

// patch records the patch, where the audit policy wants bodies.
func (n notes) patch(p jsonpatch.Patch) {
	if n.a.AddAuditBodyAnnotation == nil {
		return
	}
	n.json(n.a.AddAuditBodyAnnotation, n.key("patch."), struct {
		Configuration string          `json:"configuration"`
		Webhook       string          `json:"webhook"`
		Patch         jsonpatch.Patch `json:"patch,omitempty"`
		PatchType     string          `json:"patchType,omitempty"`
	}{n.hook.configuration, n.hook.name, p, "JSONPatch"})
}

// failedOpen records that the webhook failed, and that the write was not rejected.
func (n notes) failedOpen() { n.a.AddAuditAnnotation(n.key("failed-open.mutation."), n.hook.name) }

func (n notes) json(note func(key, value string), key string, value any) {
	if text, err := json.Marshal(value); err == nil {
		note(key, string(text))
	}
}
